package trace

import "errors"

// These errors refuse an operation on an attempt. A store wraps them; its callers
// distinguish them with errors.Is.
var (
	// ErrNotFound says that no run, attempt, call or version has that name.
	ErrNotFound = errors.New("not found")
	// ErrFenced says that the attempt no longer takes writes: a later attempt
	// has begun, or this one is sealed.
	ErrFenced = errors.New("attempt is fenced")
	// ErrConflict says that the key is taken by something else, for example a
	// reward of the same name with another value.
	ErrConflict = errors.New("conflict")
)
