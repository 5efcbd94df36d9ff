// Package jinja renders the chat templates that models are published with.
//
// A chat template is a program in Jinja, a template language of Python. This package
// reads the part of the language that such templates use. It gives it the same meaning as
// Python does when transformers' apply_chat_template runs a template: Jinja2 in an
// immutable sandbox, with trim_blocks, lstrip_blocks and loop controls. It is not a
// general template engine: it has no loader, no inheritance, no escaping and no
// extensions. A template sees only the variables that the caller gives it, and Jinja's
// global functions.
//
// Guarantees: a template renders to the same bytes as in Python, or the result is an
// [Error] that names the construct, with line and column. A construct that the package
// doesn't know is an error that wraps [ErrUnsupported]; it is never skipped or guessed.
// [Parse] returns that error if the source alone shows it, otherwise [Template.Render]
// does. A template that would run for ever, fill the memory or nest without end gets an
// error that wraps [ErrLimit]. Rendering reads no clock, no environment and no file, so
// equal variables and times give equal text.
package jinja
