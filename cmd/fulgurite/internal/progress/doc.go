// Package progress shows a person the progress of a training: on a terminal with moving
// bars, elsewhere with one line per finished step.
//
// It is not a source of truth and holds no logic of a run. Its callers report what they
// see, as often as they like; reporting the same thing twice changes nothing. Errors of
// writing are ignored, since a training must not end because a terminal was closed.
//
// Guarantees: methods may be called from any goroutine, even after Close. Without a
// terminal, no control character is written. On a terminal, what Println writes stays
// above the bars.
package progress
