// Package operator does what people want of runs: pause, resume, stop and retry them, set
// keys of their spec, approve and reject candidates, and move their promoted pointer. The
// commands and the page both act through it.
//
// It decides nothing: a run's workflow validates what it is asked (an Update), and package
// pointer what may be promoted. It starts no runs.
//
// Guarantees: the store has each action before it is done, with the person and the reason,
// and again with the answer; without a store only Temporal's history has it. An action
// with one id is done once, also if a process dies in between: its id is the id of
// Temporal's Update and part of the id of the pointer's move, and an action that has an
// answer gets the same one again.
package operator
