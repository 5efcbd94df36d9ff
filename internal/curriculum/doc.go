// Package curriculum chooses the tasks of a step where a spec has a training.curriculum:
// those of a band of pass rates, the easiest first, or those of a stage ([Choose]).
//
// It reads and writes nothing. Package activities brings the recorded results and records
// the choice; package report brings them to check a run.
//
// Guarantees: a choice depends on nothing but its input, and is the same on every
// machine; no task is drawn twice in a step while another one is left; what a step draws
// depends only on steps that were certainly finished when it began, whatever the lag; and
// what it had to do otherwise than it was asked is in the choice's note.
package curriculum
