package workflows

import (
	"fmt"
	"math"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// ErrTypeEvaluation is the type of the error of an evaluation that can't say how
// good a version is.
const ErrTypeEvaluation = "EvaluationFailed"

// EvaluationInput asks for the mean reward of a version on a split.
type EvaluationInput struct {
	Run     string      `json:"run"`
	Kind    trace.Kind  `json:"kind"`
	Policy  string      `json:"policy"`
	Version int         `json:"version"`
	Tasks   int         `json:"tasks"`
	Samples int         `json:"samples"`          // per task, at the spec's temperature
	Greedy  bool        `json:"greedy,omitempty"` // one more per task, at temperature 0
	Agent   spec.Agent  `json:"agent"`
	Grader  spec.Grader `json:"grader"`
	// Done carries what earlier executions of this evaluation found.
	Done EvaluationTally `json:"done,omitzero"`
}

// EvaluationTally sums rewards; its numbers do not depend on the order in which
// rollouts end.
type EvaluationTally struct {
	Next    int     `json:"next"` // rollouts issued, in order of task and sample
	Count   int     `json:"count"`
	Sum     float64 `json:"sum"`
	Squares float64 `json:"squares"`
	Greedy  float64 `json:"greedy"`
}

// EvaluationWorkflow runs every task of a split and puts the result on record.
// Large splits continue as new. The query "progress" answers with a Count.
func EvaluationWorkflow(ctx workflow.Context, in EvaluationInput) (activities.Evaluation, error) {
	perTask := in.Samples
	if in.Greedy {
		perTask++
	}
	total := in.Tasks * perTask
	end := min(total, in.Done.Next+evaluationChunk)
	rewards := make([]float64, end-in.Done.Next)
	count := Count{Done: in.Done.Next, Total: total}
	if err := workflow.SetQueryHandler(ctx, QueryProgress, func() (Count, error) { return count, nil }); err != nil {
		return activities.Evaluation{}, err
	}
	if err := evaluateRange(ctx, in, perTask, in.Done.Next, rewards, &count.Done); err != nil {
		return activities.Evaluation{}, err
	}
	for i, r := range rewards {
		in.Done.add(r, in.Greedy && (in.Done.Next+i)%perTask == in.Samples)
	}
	in.Done.Next = end
	if end < total {
		return activities.Evaluation{}, workflow.NewContinueAsNewError(ctx, EvaluationWorkflow, in)
	}
	e := in.Done.evaluation(in)
	var c *activities.Coordinator
	err := workflow.ExecuteActivity(coordination(ctx, "record"), c.RecordEvaluation, activities.RecordEvaluationInput{
		Run: in.Run, Policy: in.Policy, Evaluation: e,
	}).Get(ctx, nil)
	return e, err
}

// evaluateRange runs rollouts from, from+1, … one for each element of rewards,
// and counts them in done.
func evaluateRange(ctx workflow.Context, in EvaluationInput, perTask, from int, rewards []float64, done *int) error {
	return concurrently(ctx, workflow.NewSemaphore(ctx, window), len(rewards), func(ctx workflow.Context, i int) error {
		task, sample := (from+i)/perTask, (from+i)%perTask
		r, err := runAgent(ctx, sampleInput{
			RunAgentInput: activities.RunAgentInput{
				Rollout: trace.RolloutID{Run: in.Run, Kind: in.Kind, Step: in.Version, Task: task, Sample: sample},
				Index:   task, Policy: in.Policy, Version: in.Version, Greedy: sample == in.Samples,
			},
			Agent: in.Agent, Grader: in.Grader,
		})
		if err != nil {
			return err
		}
		if r.Reward == nil {
			return temporal.NewNonRetryableApplicationError(
				fmt.Sprintf("task %d of the %s split can't be graded: %s", task, in.Kind, r.TaskFault), ErrTypeEvaluation, nil)
		}
		rewards[i] = *r.Reward
		*done++
		workflow.SetCurrentDetails(ctx, fmt.Sprintf("%d of %d rollouts", *done, in.Tasks*perTask))
		return nil
	})
}

func (t *EvaluationTally) add(reward float64, greedy bool) {
	if greedy {
		t.Greedy += reward
		return
	}
	t.Count++
	t.Sum += reward
	t.Squares += reward * reward
}

func (t *EvaluationTally) evaluation(in EvaluationInput) activities.Evaluation {
	n := float64(t.Count)
	e := activities.Evaluation{Kind: in.Kind, Version: in.Version, Tasks: in.Tasks, Rollouts: t.Count, Mean: t.Sum / n}
	if t.Count > 1 {
		variance := math.Max(0, (t.Squares-n*e.Mean*e.Mean)/(n-1))
		e.StdError = math.Sqrt(variance / n)
	}
	if in.Greedy {
		greedy := t.Greedy / float64(in.Tasks)
		e.Greedy = &greedy
	}
	return e
}
