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
}

// TryWorkflow prepares a run as TrainingWorkflow does and runs the groups of the
// first tasks at version 0: what `fulgurite try` shows.
func TryWorkflow(ctx workflow.Context, in TryInput) ([]activities.Group, error) {
	t := &trainingRun{TrainingState: &TrainingState{Run: workflow.GetInfo(ctx).WorkflowExecution.ID}}
	if err := t.prepare(ctx, in.Training); err != nil {
		return nil, err
	}
	if err := t.initPolicy(ctx); err != nil {
		return nil, err
	}
	groups := make([]activities.Group, min(in.Tasks, t.Splits[trace.Train].Count))
	for i := range groups {
		child := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: rolloutID(t.Run, trace.Try, 0, i)})
		var r RolloutResult
		err := workflow.ExecuteChildWorkflow(child, RolloutWorkflow, RolloutInput{
			Run: t.Run, Kind: trace.Try, Task: i, Index: i, Policy: model.DefaultPolicy,
			Samples: t.Spec.Training.SamplesPerTask, Agent: t.Spec.Agent, Grader: t.Spec.Grader,
		}).Get(ctx, &r)
		if err != nil {
			return nil, err
		}
		groups[i] = r.Group
	}
	return groups, nil
}
