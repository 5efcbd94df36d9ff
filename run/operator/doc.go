// Package operator carries out the actions that users request on runs: pause, resume,
// stop and retry them, set keys of their spec, approve and reject candidates, and move
// their promoted pointer. Both the commands and the page use it.
//
// It decides nothing about a run under way: the run's workflow validates a request (an
// Update). What may be promoted by hand it checks itself: a version that exists and was
// evaluated. It starts no runs.
//
// Guarantees: each action is in the store before it is done, with the person and the
// reason, and afterwards with the answer. Without a store, only Temporal's history has
// it. An action with one id is done once, even if a process dies meanwhile: its id is the
// id of Temporal's Update and part of the id of the pointer's move. An action that
// already has an answer returns the same answer again.
package operator
