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

// QueryState answers with the TrainingState after the last finished step, also of a run that
// has ended.
const QueryState = "state"

// rolloutID returns the id of the child that runs one task's group, for example
// "demo/train-3/17".
func rolloutID(run string, kind trace.Kind, step, task int) string {
	return fmt.Sprintf("%s/%s-%d/%d", run, kind, step, task)
}

// evaluationID returns the id of the child that evaluates a version, for example
// "demo/gate-5".
func evaluationID(run string, kind trace.Kind, version int) string {
	return fmt.Sprintf("%s/%s-%d", run, kind, version)
}

// rolloutSummary returns what Temporal's Web UI shows next to the type of a rollout's
// workflow.
func rolloutSummary(in RolloutInput) string {
	what := fmt.Sprintf("step %d, task %d", in.Step, in.Task)
	switch in.Kind {
	case trace.Try:
		what = fmt.Sprintf("try of task %d", in.Task)
	case trace.Reserve:
		what = fmt.Sprintf("step %d, reserve %d", in.Step, in.Task)
	}
	return fmt.Sprintf("%s (line %d of the split), version %d, %d samples", what, in.Index+1, in.Version, in.Samples)
}

// evaluationSummary returns the same for an evaluation's workflow.
func evaluationSummary(in EvaluationInput) string {
	return fmt.Sprintf("version %d on the %s split, %d tasks", in.Version, in.Kind, in.Tasks)
}
