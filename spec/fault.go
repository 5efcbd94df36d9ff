package spec

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/spec/bounds"
)

// Fault is one thing wrong with a spec.
type Fault struct {
	// Key is the path of the key, as in "training.optimizer.schedule". It is empty if the
	// fault is about the whole file.
	Key string
	// Line is the line in the file, from 1. It is 0 if the line is not known.
	Line int
	// Message says what is wrong, and Remedy what to do about it.
	Message string
	Remedy  string
	// meant is the path of the key that the user probably meant by an unknown key. It is
	// empty for all other faults.
	meant string
}

// String returns the fault on one line.
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(f.Key)
	if f.Line > 0 && f.Key != "" {
		fmt.Fprintf(&b, " (line %d)", f.Line)
	} else if f.Line > 0 {
		fmt.Fprintf(&b, "line %d", f.Line)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(f.Message)
	if f.Remedy != "" {
		b.WriteString("; " + f.Remedy)
	}
	return b.String()
}

// Faults holds everything that is wrong with a spec. It is the error of Parse, Load,
// Validate, CheckFiles and Check.
type Faults struct {
	// Name is the name of the file; empty if there is no file.
	Name string
	List []Fault
	// bounds records the bounds of the numbers that were checked, by key. Nothing is
	// recorded if it is nil.
	bounds map[string]bounds.Bounds
}

// Error returns the faults, one on each line.
func (f *Faults) Error() string {
	name := f.Name
	if name == "" {
		name = "spec"
	}
	if len(f.List) == 1 {
		return name + ": " + f.List[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d faults", name, len(f.List))
	for _, fault := range f.List {
		b.WriteString("\n  " + fault.String())
	}
	return b.String()
}

// err returns f as an error, or nil if there is no fault.
func (f *Faults) err() error {
	if len(f.List) == 0 {
		return nil
	}
	return f
}

func (f *Faults) add(key, remedy, format string, args ...any) {
	f.List = append(f.List, Fault{Key: key, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

// join adds the faults in err. It leaves out those about keys that already have a fault,
// because they follow from it.
func (f *Faults) join(err error) {
	var more *Faults
	if !errors.As(err, &more) {
		return
	}
	known := slices.Clone(f.List)
	for _, fault := range more.List {
		if !slices.ContainsFunc(known, func(k Fault) bool { return related(k.Key, fault.Key) || k.meant == fault.Key }) {
			f.List = append(f.List, fault)
		}
	}
}

// related reports whether one of the keys is the other or lies above it.
func related(a, b string) bool {
	return a == b || above(a, b) || above(b, a)
}

func above(a, b string) bool {
	return strings.HasPrefix(b, a+".") || strings.HasPrefix(b, a+"[")
}
