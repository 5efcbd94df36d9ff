package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/trace"
)

// TryInput asks for a few groups of a spec without training.
type TryInput struct {
	Training TrainingInput `json:"training"`
	Tasks    int           `json:"tasks"`
	// Twice runs each rollout a second time, as a later attempt that finds the
	// calls of the first on record.
	Twice bool `json:"twice,omitempty"`
}

// TryResult names the attempts of a trial.
type TryResult struct {
	Groups []activities.Group `json:"groups"`
	// Again holds the second attempts at the same rollouts, in the same order.
	Again []activities.Group `json:"again,omitempty"`
}

// TryWorkflow prepares a run as TrainingWorkflow does and runs the groups of the
// first tasks at version 0: what `fulgurite try` shows.
func TryWorkflow(ctx workflow.Context, in TryInput) (TryResult, error) {
	t := newTrainingRun(ctx, nil)
	if err := t.prepare(ctx, in.Training); err != nil {
		return TryResult{}, err
	}
	if err := t.initPolicy(ctx); err != nil {
		return TryResult{}, err
	}
	var out TryResult
	for i := range min(in.Tasks, t.Splits[trace.Train].Count) {
		name := rolloutID(t.Run, trace.Try, 0, i)
		group, err := t.try(ctx, name, i)
		if err != nil {
			return out, err
		}
		out.Groups = append(out.Groups, group)
		if !in.Twice {
			continue
		}
		if group, err = t.try(ctx, name+"/again", i); err != nil {
			return out, err
		}
		out.Again = append(out.Again, group)
	}
	return out, nil
}

// try runs the group of a task, as the workflow of that name.
func (t *trainingRun) try(ctx workflow.Context, name string, task int) (activities.Group, error) {
	in := RolloutInput{
		Run: t.Run, Kind: trace.Try, Task: task, Index: task, Policy: model.DefaultPolicy, Samples: t.Spec.Training.SamplesPerTask,
	}
	in.Agent, in.Grader = forChildren(t.Spec)
	r, err := runChild[RolloutResult](ctx, name, rolloutSummary(in), RolloutWorkflow, in)
	return r.Group, err
}
