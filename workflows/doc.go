// Package workflows orchestrates a training run: what happens, in which order, and
// what follows from each outcome. It is deterministic and touches neither disk,
// network nor clock; package activities does that.
//
// TrainingWorkflow is a run. In each step it starts one RolloutWorkflow for each task,
// which runs the task's samples as a group. Credit, update and publication follow, and
// every few steps an EvaluationWorkflow and the decision to promote. All its state is one
// struct, which continue-as-new carries over.
//
// The names of the workflows, their inputs and results are a public contract: `temporal
// workflow start --type TrainingWorkflow --task-queue training` with a spec as its input
// starts a run without our tools. Recorded histories in testsuite/histories are replayed
// in tests, to make sure that the code here still can.
package workflows
