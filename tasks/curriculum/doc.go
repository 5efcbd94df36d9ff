// Package curriculum chooses the tasks of a step if the spec has a training.curriculum:
// tasks in a band of pass rates, the easiest tasks first, or the tasks of a stage
// ([Choose]).
//
// It reads and writes nothing. Package activities passes it the recorded results and
// records the choice. Package report passes it the same results to check a run.
//
// Guarantees: a choice depends only on its input, and is the same on every machine. No
// task is drawn twice in a step while another one is left. What a step draws depends only
// on steps that were certainly finished when it began, whatever the lag. If a choice
// could not be made as the spec says, its note tells how it differs.
package curriculum
