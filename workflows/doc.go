// Package workflows orchestrates a training run: what happens, in which order, and
// what follows from each outcome. It is deterministic and touches neither disk,
// network nor clock; package activities does that.
//
// TrainingWorkflow is a run. Each step it starts one RolloutWorkflow a task,
// which runs the task's samples as a group; then credit, update, publication,
// and every few steps an EvaluationWorkflow and the decision to promote. All its
// state is one struct that continue-as-new carries whole.
//
// The names of the workflows, their inputs and results are a public contract:
// `temporal workflow start --type TrainingWorkflow --task-queue training` with a
// spec as its input is how a run is started without our tools. Recorded
// histories in testsuite/histories hold that code here still replays them.
package workflows
