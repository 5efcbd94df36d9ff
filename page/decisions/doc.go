// Package decisions describes in words what was decided about the versions of a run:
// first a plain sentence, then, separately, the numbers that led to it.
//
// It only describes what is recorded. It decides nothing.
package decisions
