package jinja

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// longestSource is many times the longest chat template that is in use.
const longestSource = 1 << 20

// Template is a parsed template. It doesn't change, and any number of goroutines
// may render it at once.
type Template struct {
	source string // with "\n" at the end of each line
	*functions
	names *names
	body  block
}

// Parse reads a template. Its error is an [*Error].
func Parse(source string) (t *Template, err error) {
	t = &Template{source: normalize(source)}
	defer t.catch(&err)
	if len(source) > longestSource {
		fail(ErrLimit, 0, "the template is longer than %d bytes", longestSource)
	}
	if i := invalid(t.source); i >= 0 {
		fail(ErrSyntax, i, "the template is not UTF-8")
	}
	t.functions = allFunctions()
	p := &parser{functions: t.functions, tokens: lex(t.source)}
	p.scope = p.names()
	p.scope.function = true
	t.names = p.scope
	t.body, _ = p.body()
	p.resolve()
	return t, nil
}

// invalid returns the offset of the first byte that is not UTF-8, or −1.
func invalid(s string) int {
	if utf8.ValidString(s) {
		return -1
	}
	return len(s) - len(s[len(strings.ToValidUTF8(s, "")):])
}

// Render runs the template. variables is an object whose members are the template's
// variables. apply_chat_template always gives messages, tools, documents and
// add_generation_prompt, which are none if there are none. It also gives the special
// tokens that the tokenizer has (bos_token, eos_token, …). A template can tell none from
// a variable that is not given. strftime_now formats now, in the location of now. The
// error is an [*Error].
func (t *Template) Render(variables Value, now time.Time) (text string, err error) {
	return t.render(variables, now, nil)
}

func (t *Template) render(variables Value, now time.Time, alphabet []rune) (text string, err error) {
	defer t.catch(&err)
	given, ok := variables.of.(*dict)
	if !ok {
		fail(ErrRender, 0, "the variables are a %s, not an object", typeName(variables.inside()))
	}
	r := &run{functions: t.functions, variables: given, now: now, alphabet: alphabet}
	r.within(t.names, func() { t.body.run(r) })
	return string(r.out), nil
}

// catch turns a fault into an error.
func (t *Template) catch(err *error) {
	switch f := recover().(type) {
	case nil:
	case *fault:
		*err = t.located(f)
	default:
		panic(f)
	}
}

func (t *Template) located(f *fault) *Error {
	before := t.source[:min(f.pos, len(t.source))]
	line := strings.LastIndexByte(before, '\n') + 1
	return &Error{
		Kind:    f.kind,
		Line:    strings.Count(before, "\n") + 1,
		Column:  utf8.RuneCountInString(before[line:]) + 1,
		Message: f.message,
	}
}

// The errors that an [Error] wraps.
var (
	// ErrSyntax means that the source is not a template; Python would refuse it, too.
	ErrSyntax = errors.New("syntax error")
	// ErrUnsupported means that a construct is outside of the part of Jinja that this
	// package knows. Python might render it.
	ErrUnsupported = errors.New("not supported")
	// ErrRender means that the template failed while it rendered, as it would in Python.
	// For example, it read an attribute of an undefined value.
	ErrRender = errors.New("render error")
	// ErrRaised means that the template called raise_exception, because it refuses these
	// messages. Message is its text.
	ErrRaised = errors.New("raised by the template")
	// ErrLimit means that rendering took more steps, memory or depth than any chat
	// template needs.
	ErrLimit = errors.New("limit exceeded")
)

// Error is the error of Parse and Render.
type Error struct {
	// Kind is one of the sentinels above.
	Kind error
	// Line and Column are the place in the source. Both begin at 1; a column counts
	// characters.
	Line, Column int
	// Message names the construct.
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("chat template, line %d, column %d: %v: %s", e.Line, e.Column, e.Kind, e.Message)
}

func (e *Error) Unwrap() error { return e.Kind }
