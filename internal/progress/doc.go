// Package progress shows a person how a training comes along: on a terminal
// bars that move, elsewhere one line per finished step.
//
// It is no source of truth and holds no logic of a run: its callers tell it what
// they see, as often as they like, and telling it the same twice changes
// nothing. What can't be written is dropped, since nobody's training should end
// because a terminal closed.
//
// Guarantees: methods may be called from any goroutine, also after Close; without a
// terminal no control character is written; with one, what Println writes stays above the
// bars.
package progress
