package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/internal/readable"
)

// TypePrune is no run: it removes what runs have left.
const TypePrune = "PruneWorkflow"

// PruneWorkflow removes what a rule says is no longer needed of runs that have ended, and
// returns what it was. A Temporal Schedule starts it. What is about to be removed is in its
// history before anything is, so its result counts what an interrupted try removed, too.
func PruneWorkflow(ctx workflow.Context, in activities.PruneInput) (activities.PruneResult, error) {
	workflow.SetCurrentDetails(ctx, "looks for "+in.Rule.Text())
	var c *activities.Coordinator
	var plan, left activities.PruneResult
	if err := workflow.ExecuteActivity(pruning(ctx, "what is no longer needed"), c.PlanPruning, in).Get(ctx, &plan); err != nil {
		return plan, err
	}
	if plan.Runs == 0 {
		workflow.SetCurrentDetails(ctx, plan.Message)
		return plan, nil
	}
	workflow.SetCurrentDetails(ctx, "removes "+plan.Message)
	if err := workflow.ExecuteActivity(pruning(ctx, readable.Bytes(plan.Bytes)+" of "+readable.Count(plan.Runs, "run")), c.PruneRuns, in).Get(ctx, &left); err != nil {
		return plan, err
	}
	plan.Message = "removed " + plan.Message
	workflow.SetCurrentDetails(ctx, plan.Message)
	return plan, nil
}

// pruning returns a context for an activity that reads or removes what many runs have left.
// It may take hours; another try goes on where one was cut off.
func pruning(ctx workflow.Context, summary string) workflow.Context {
	return withActivity(ctx, workflow.ActivityOptions{
		TaskQueue:           QueueTraining,
		StartToCloseTimeout: 24 * time.Hour,
		HeartbeatTimeout:    10 * time.Second, // seconds lost when a worker dies; keepAlive beats every 2
		RetryPolicy:         forever(time.Second, 30*time.Second),
		Summary:             summary,
	})
}
