package workflows

import (
	"fmt"

	"github.com/fulgurite/fulgurite/trace"
)

// The task queues.
const (
	QueueTraining = "training"
	QueueRollout  = "rollout-cpu"
	QueueTrainGPU = "train-gpu"
)

// QueryProgress answers with a Progress, in an evaluation with a Count.
const QueryProgress = "progress"

// rolloutID names the child that runs one task's group, for example
// "demo/train-3/17".
func rolloutID(run string, kind trace.Kind, step, task int) string {
	return fmt.Sprintf("%s/%s-%d/%d", run, kind, step, task)
}

// evaluationID names the child that evaluates a version, for example
// "demo/gate-5".
func evaluationID(run string, kind trace.Kind, version int) string {
	return fmt.Sprintf("%s/%s-%d", run, kind, version)
}
