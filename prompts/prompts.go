// Package prompts holds the named texts that replace parts of an agent's prompts, and the
// rules that say which part each of them replaces.
//
// A [Set] is what the attempts of a run are served: [Prompts], which are named texts, and
// rules. It is immutable, and its digest names its content. A [Match] decides from the
// request alone whether a rule applies: from the agent's name, from the model that is
// asked for, and from the text as the agent sent it. A rule replaces the text that it
// matched and not the whole message, because an agent's message is often an instruction
// followed by something else, such as a schema.
//
// Besides rules, a system message of the agent may name a prompt, as {{prompt:NAME}}.
//
// The package does no I/O, and imports nothing of ours, so that a spec can use its checks.
// Package rewrite applies a set to a request.
package prompts

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxBytes is the most bytes that the text of a prompt may have.
const MaxBytes = 256 << 10

// NamePattern is the pattern of the names of prompts.
const NamePattern = `[a-z][a-z0-9_-]{0,62}`

var name = regexp.MustCompile(`^` + NamePattern + `$`)

// ErrNotFound is wrapped by a NotFoundError.
var ErrNotFound = errors.New("no such prompt")

// NotFoundError says that no prompt has a name.
type NotFoundError struct {
	Name string
	// Names lists the prompts that there are.
	Names []string
}

func (e *NotFoundError) Error() string {
	there := "there are none"
	if len(e.Names) > 0 {
		there = "there are " + strings.Join(e.Names, ", ")
	}
	return fmt.Sprintf("read prompt %q: %s: %s", e.Name, ErrNotFound, there)
}

func (e *NotFoundError) Unwrap() error { return ErrNotFound }

// Prompt is a text.
type Prompt struct {
	Text string `json:"text"`
	// Placeholders are the names in braces, as {NAME}, that the agent fills in after it
	// has read the text. If there are any, the text has each of them and no other. If
	// there are none, braces mean nothing.
	Placeholders []string `json:"placeholders,omitempty"`
}

// Prompts are named texts. They never change. The zero value has none.
type Prompts struct{ byName map[string]Prompt }

// New returns the prompts with their names. The error is an *Error that lists all faults.
func New(byName map[string]Prompt) (Prompts, error) {
	p := Prompts{map[string]Prompt{}}
	var faults []Fault
	for _, n := range slices.Sorted(maps.Keys(byName)) {
		one := byName[n]
		faults = append(faults, one.Faults(n)...)
		one.Placeholders = slices.Sorted(slices.Values(one.Placeholders)) // a copy
		p.byName[n] = one
	}
	return p, asError(faults)
}

// Names lists the names in alphabetical order.
func (p Prompts) Names() []string { return slices.Sorted(maps.Keys(p.byName)) }

// Text returns the text of a prompt. The error is a *NotFoundError.
func (p Prompts) Text(name string) (string, error) {
	one, ok := p.byName[name]
	if !ok {
		return "", &NotFoundError{name, p.Names()}
	}
	return one.Text, nil
}

// Digest returns "sha256:" and the hex digest of the JSON of the prompts.
func (p Prompts) Digest() string { return digestOf(p) }

// MarshalJSON writes an object with the prompts by name. Equal prompts have equal bytes.
func (p Prompts) MarshalJSON() ([]byte, error) {
	if p.byName == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(p.byName) //nolint:wrapcheck // strings always encode
}

// UnmarshalJSON reads what MarshalJSON wrote, and checks it as New does.
func (p *Prompts) UnmarshalJSON(data []byte) error {
	var byName map[string]Prompt
	if err := json.Unmarshal(data, &byName); err != nil {
		return fmt.Errorf("decode prompts: %w", err)
	}
	var err error
	*p, err = New(byName)
	return err
}

// Faults lists what is wrong with a prompt of a name.
func (p Prompt) Faults(called string) []Fault {
	var faults []Fault
	add := func(field, remedy, format string, args ...any) {
		faults = append(faults, Fault{Prompt: called, Rule: -1, Field: field, Message: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	if !name.MatchString(called) {
		add("name", "use 1 to 63 of a-z, 0-9, '_' and '-', with a letter first", "%q can't be the name of a prompt", called)
	}
	switch {
	case p.Text == "":
		add("text", "give a text", "empty")
	case !utf8.ValidString(p.Text):
		add("text", "save it in UTF-8", "it is not UTF-8")
	case len(p.Text) > MaxBytes:
		add("text", "shorten it", "its %d bytes are more than %d", len(p.Text), MaxBytes)
	}
	if at := strings.Index(p.Text, referenceOpen); at >= 0 {
		add("text", "write the text out", "it names another prompt (%.40q), and prompts are not put into prompts", p.Text[at:])
	}
	for i, n := range p.Placeholders {
		switch {
		case !placeholderName.MatchString(n):
			add("placeholders", "give names of letters, digits and '_', without braces", "%q can't be the name of a placeholder", n)
		case slices.Contains(p.Placeholders[:i], n):
			add("placeholders", "remove one", "%s is given twice", n)
		}
	}
	if len(p.Placeholders) == 0 {
		return faults
	}
	found, known := Placeholders(p.Text), slices.Compact(slices.Sorted(slices.Values(p.Placeholders)))
	for _, n := range known {
		if placeholderName.MatchString(n) && !slices.Contains(found, n) {
			add("text", "write it where the agent's value belongs", "placeholder {%s} is missing", n)
		}
	}
	for _, n := range found {
		if !slices.Contains(known, n) {
			add("text", "remove it, or write {{"+n+"}} for braces that are text", "placeholder {%s} is unknown: the agent fills in %s", n, strings.Join(known, ", "))
		}
	}
	return faults
}

// Fault is one thing that is wrong with a prompt or a rule.
type Fault struct {
	// Prompt is the name of the prompt. Of a rule, it is the prompt that the rule names.
	Prompt string
	// Rule is the number of the rule, from 0; -1 if the fault is the prompt's.
	Rule int
	// Field is the name of the field at fault, such as "text" or "match.prefix".
	Field string
	// Message says what is wrong, and Remedy what to do.
	Message, Remedy string
}

func (f Fault) String() string {
	of := fmt.Sprintf("prompt %q", f.Prompt)
	if f.Rule >= 0 {
		of = fmt.Sprintf("rule %d (prompt %q)", f.Rule, f.Prompt)
	}
	return fmt.Sprintf("%s: %s: %s; %s", of, f.Field, f.Message, f.Remedy)
}

// Error lists everything that is wrong with prompts and rules.
type Error struct{ Faults []Fault }

func (e *Error) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

func asError(faults []Fault) error {
	if len(faults) == 0 {
		return nil
	}
	return &Error{faults}
}

func digestOf(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(data))
}
