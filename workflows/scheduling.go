package workflows

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/spec"
)

// maxFairnessKey is the longest fairness key, in bytes, that Temporal takes.
const maxFairnessKey = 64

type priorityKey struct{}

// scheduled returns a context in which activities and children have the priority of the
// run at the time when they are scheduled.
func (t *trainingRun) scheduled(ctx workflow.Context) workflow.Context {
	return workflow.WithValue(ctx, priorityKey{}, t.priority)
}

// priorityIn returns the priority for what is scheduled now. It is zero in workflows that
// belong to a run: their activities and children inherit the priority of the workflow.
func priorityIn(ctx workflow.Context) temporal.Priority {
	if priority, ok := ctx.Value(priorityKey{}).(func() temporal.Priority); ok {
		return priority()
	}
	return temporal.Priority{}
}

// withActivity returns a context for activities with these options and the priority of the
// run.
func withActivity(ctx workflow.Context, options workflow.ActivityOptions) workflow.Context {
	options.Priority = priorityIn(ctx)
	return workflow.WithActivityOptions(ctx, options)
}

// withChild returns a context for children with these options and the priority of the run.
func withChild(ctx workflow.Context, options workflow.ChildWorkflowOptions) workflow.Context {
	options.Priority = priorityIn(ctx)
	return workflow.WithChildOptions(ctx, options)
}

// priority returns how the tasks of the run are chosen among those of others. A number that
// neither the spec nor a person gave is zero: then the one counts with which the workflow
// was started. Unlike other numbers of the spec, one that a person sets counts at once.
func (s *TrainingState) priority() temporal.Priority {
	scheduling := s.Spec.Scheduling
	for _, setting := range s.Settings {
		if v, ok := setting.Values[spec.KeyWeight]; ok {
			scheduling.Weight = v
		}
		if v, ok := setting.Values[spec.KeyPriority]; ok {
			scheduling.Priority = int(v)
		}
	}
	return temporal.Priority{
		FairnessKey:    s.Run[:min(len(s.Run), maxFairnessKey)],
		FairnessWeight: float32(scheduling.Weight),
		PriorityKey:    scheduling.Priority,
	}
}
