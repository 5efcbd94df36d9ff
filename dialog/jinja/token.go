package jinja

import "fmt"

// kind says what a token is.
type kind int

const (
	end kind = iota // of the source
	data
	variableBegin
	variableEnd
	blockBegin
	blockEnd
	name
	text // a string literal; value is its string
	integer
	float
	operator
)

// token is a piece of the source. pos is the offset of its first byte in the
// source after its line ends were made "\n".
type token struct {
	kind  kind
	text  string
	value any
	pos   int
}

// is says whether the token is this word or operator.
func (t token) is(k kind, text string) bool { return t.kind == k && t.text == text }

// String names the token in an error.
func (t token) String() string {
	switch t.kind {
	case end:
		return "the end of the template"
	case data:
		return "text"
	case variableEnd:
		return "}}"
	case blockEnd:
		return "%}"
	}
	return fmt.Sprintf("%q", t.text)
}
