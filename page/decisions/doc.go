// Package decisions says for people what was decided about the versions of a run: a plain
// sentence first, and the numbers behind it apart.
//
// It only words what is on record and decides nothing.
package decisions
