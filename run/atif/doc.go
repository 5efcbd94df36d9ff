// Package atif writes the attempts of a run as trajectories in ATIF 1.7, the Agent
// Trajectory Interchange Format of Harbor: one JSON document for each attempt, with the
// token ids and log-probabilities of each model call.
//
// A step of a document is a message, or one model call. An attempt whose calls form one
// conversation is one trajectory. In any other attempt, such as one of several agents,
// each conversation is an embedded trajectory under the name of its agent, and a step of
// the outer trajectory refers to each, in order.
//
// The package reads what is on record and computes nothing again. It is not a reader of
// the format. Attempts are read one by one, so that a run of any length fits into memory.
// Every document has the form that Harbor's validator accepts; docs/formats.md says what
// is where.
package atif
