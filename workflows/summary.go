package workflows

import (
	"fmt"

	"github.com/fulgurite/fulgurite/trace"
)

// rolloutSummary is what Temporal's Web UI shows beside the type of a rollout's
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

// evaluationSummary is likewise for an evaluation's.
func evaluationSummary(in EvaluationInput) string {
	return fmt.Sprintf("version %d on the %s split, %d tasks", in.Version, in.Kind, in.Tasks)
}
