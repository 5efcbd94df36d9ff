// Package jinja renders the chat templates that models are published with.
//
// A chat template is a program in Jinja, a template language of Python. This
// package reads the part of the language that such templates use and gives it
// the meaning that Python gives it where transformers' apply_chat_template runs
// it: Jinja2 in an immutable sandbox, with trim_blocks, lstrip_blocks and loop
// controls. It is not a general template engine: it has no loader, no
// inheritance, no escaping and no extensions. Templates see nothing but the
// variables they are given.
//
// Guarantees: a template renders to the bytes that Python would have made of it, or there
// is an [Error] that names the construct with line and column. What the package doesn't
// know is an error that wraps [ErrUnsupported], at [Parse] where the source alone shows
// it, else at [Template.Render]; it is never skipped or guessed. A template that would
// run for ever, fill the memory or nest without end gets an error that wraps [ErrLimit].
// Rendering reads no clock, no environment and no file, so equal variables and times give
// equal text.
package jinja
