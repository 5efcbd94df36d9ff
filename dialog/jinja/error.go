package jinja

import (
	"errors"
	"fmt"
)

// What an [Error] wraps.
var (
	// ErrSyntax says that the source is no template; Python would refuse it too.
	ErrSyntax = errors.New("syntax error")
	// ErrUnsupported says that a construct is outside of the part of Jinja that
	// this package knows. Python might render it.
	ErrUnsupported = errors.New("not supported")
	// ErrRender says that the template did what Python refuses while it renders,
	// for example reading an attribute of what is undefined.
	ErrRender = errors.New("render error")
	// ErrRaised says that the template called raise_exception: it refuses these
	// messages. Message is its text.
	ErrRaised = errors.New("raised by the template")
	// ErrLimit says that rendering took more steps, memory or depth than any
	// chat template needs.
	ErrLimit = errors.New("limit exceeded")
)

// Error is what Parse and Render return.
type Error struct {
	// Kind is one of the sentinels above.
	Kind error
	// Line and Column say where in the source, both from 1; a column counts
	// characters.
	Line, Column int
	// Message names the construct.
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("chat template, line %d, column %d: %v: %s", e.Line, e.Column, e.Kind, e.Message)
}

func (e *Error) Unwrap() error { return e.Kind }
