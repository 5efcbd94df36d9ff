package tasks

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/internal/textfile"
)

const (
	// shownFaults is how many different faults an error lists.
	shownFaults = 20
	// shownPlaces is how many further places of a fault it names.
	shownPlaces = 3
)

// Fault describes a fault of a line, a row or a task.
type Fault struct {
	// Place is the first place of the fault: the number of a line or a row, or a task's
	// id.
	Place string
	Cause error
	// Also are the further places of a fault with the same text.
	Also []string
}

// Faults has the faults of several lines, rows or tasks. Faults with the same text are
// one Fault, which has their places.
type Faults struct {
	List []Fault

	at map[string]int // index in List by text
}

// Add adds a fault. If there is one with the same text, it adds the place to that.
func (f *Faults) Add(place string, cause error) {
	text := cause.Error()
	if i, known := f.at[text]; known {
		f.List[i].Also = append(f.List[i].Also, place)
		return
	}
	if f.at == nil {
		f.at = map[string]int{}
	}
	f.at[text] = len(f.List)
	f.List = append(f.List, Fault{Place: place, Cause: cause})
}

// Places returns how many lines, rows or tasks have a fault.
func (f *Faults) Places() int {
	n := 0
	for _, one := range f.List {
		n += 1 + len(one.Also)
	}
	return n
}

// Unwrap returns the causes.
func (f *Faults) Unwrap() []error {
	var out []error
	for _, one := range f.List {
		out = append(out, one.Cause)
	}
	return out
}

// text lists the first faults, one per line. before stands before each place, and noun is the
// kind of place.
func (f *Faults) text(before, noun string) string {
	var lines []string
	for _, one := range f.List[:min(shownFaults, len(f.List))] {
		lines = append(lines, fmt.Sprintf("%s%s: %v%s", before, one.Place, one.Cause, one.also(noun)))
	}
	if more := len(f.List) - shownFaults; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// also returns the further places, as in " (also lines 2, 3, 4 and 7 more)".
func (f Fault) also(noun string) string {
	switch {
	case len(f.Also) == 0:
		return ""
	case len(f.Also) == 1:
		return fmt.Sprintf(" (also %s %s)", noun, f.Also[0])
	}
	return fmt.Sprintf(" (also %ss %s)", noun, someOf(f.Also, 0))
}

// someOf lists the first of several places, as in "2, 3, 4 and 7 more". more counts
// places that are not in the list.
func someOf(places []string, more int) string {
	if beyond := len(places) - shownPlaces; beyond > 0 {
		places, more = places[:shownPlaces], more+beyond
	}
	switch last := len(places) - 1; {
	case more > 0:
		return fmt.Sprintf("%s and %d more", strings.Join(places, ", "), more)
	case last > 0:
		return strings.Join(places[:last], ", ") + " and " + places[last]
	}
	return strings.Join(places, "")
}

// FileError is the error of a file of tasks or demonstrations that can't be used.
type FileError struct {
	Name string
	rows bool // places are rows of a JSON array, counted from 0; otherwise lines, from 1
	Faults
}

// Error lists the faults, one on a line, as file:line: reason or file:row n: reason.
func (e *FileError) Error() string {
	if e.rows {
		return e.text(e.Name+":row ", "row")
	}
	return e.text(e.Name+":", "line")
}

// Noun is what the places of the faults are: "line" or "row".
func (e *FileError) Noun() string {
	if e.rows {
		return "row"
	}
	return "line"
}

// ListError is the error of a list of tasks that a grader can't grade.
type ListError struct {
	Source string // empty if it is not known
	Faults
}

// Error lists the faults, one on a line, as source: task id: reason.
func (e *ListError) Error() string {
	before := "task "
	if e.Source != "" {
		before = e.Source + ": task "
	}
	return e.text(before, "task")
}

// OrNil returns e as an error, or nil if there is no fault.
func (e *ListError) OrNil() error {
	if len(e.List) == 0 {
		return nil
	}
	return e
}

// OfSource adds the name of their source to an error about tasks.
func OfSource(source string, err error) error {
	var list *ListError
	if errors.As(err, &list) {
		return &ListError{source, list.Faults}
	}
	return fmt.Errorf("%s: %w", source, err)
}

// errFormat is wrapped by the error of a file in another format.
var errFormat = errors.New("it has no JSON")

// otherFormat returns an error that names the format of a file that has no JSON, by the
// file's name and its first bytes. It returns nil if the file may have JSON.
func otherFormat(name string, begin []byte) error {
	of := func(kind, remedy string) error { return fmt.Errorf("%w: it is %s: %s", errFormat, kind, remedy) }
	const convert = "convert it to one JSON object on each line"
	with := func(function string) string {
		return convert + ", as in pandas." + function + "(FILE).to_json(OUT, orient=\"records\", lines=True, force_ascii=False)"
	}
	if f, other := textfile.FormatOf(begin); other {
		switch {
		case f.Remedy != "":
			return of(f.Name, f.Remedy)
		case f.Name == textfile.Parquet:
			return of(f.Name, with("read_parquet"))
		}
		return of(f.Name, convert)
	}
	text := strings.TrimSpace(strings.TrimPrefix(string(begin), textfile.Mark))
	if text == "" || strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") || strings.HasPrefix(text, "//") {
		return nil
	}
	first, _, _ := strings.Cut(text, "\n")
	switch lower, extension := strings.ToLower(text), strings.ToLower(filepath.Ext(name)); {
	case strings.HasPrefix(lower, "<!doctype") || strings.HasPrefix(lower, "<html") || strings.HasPrefix(lower, "<?xml"):
		return of("a page of HTML or XML", "look whether the download got an error or a page for signing in")
	case extension == ".tsv", strings.Contains(first, "\t"):
		return of("a table with tabs", convert)
	case extension == ".csv", strings.Contains(first, ",") && utf8.ValidString(first):
		return of("CSV", with("read_csv"))
	case extension == ".yaml", extension == ".yml":
		return of("YAML", convert)
	}
	return nil
}
