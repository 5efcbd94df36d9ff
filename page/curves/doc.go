// Package curves makes the figures of a run out of what is on record of its steps: which
// curves there are, what is marked on them, and which part of them is shown.
//
// Its functions are pure. They read nothing and draw nothing, which package figure does.
package curves
