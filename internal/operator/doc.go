// Package operator does what people want of runs: pause, resume, stop and retry them, set
// keys of their spec, approve and reject candidates, and move their promoted pointer. The
// commands and the page both act through it.
//
// It decides nothing: a run's workflow validates what it is asked (an Update), and package
// pointer what may be promoted. It starts no runs.
//
// Guarantees: What is asked is on record in the store before it is done, with who asked
// and why, and again with the answer; without a store it is in Temporal's history alone.
// And one id is done once: the id of an action is that of Temporal's Update and part of
// that of the pointer's move, and an action that has an answer gets the same one again,
// whoever was killed in between.
package operator
