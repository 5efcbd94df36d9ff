// Package curves makes the figures of a run from the records of its steps: which curves
// there are, what is marked on them, and which range of them is shown.
//
// Its functions are pure. They read nothing and draw nothing; package figure draws.
package curves
