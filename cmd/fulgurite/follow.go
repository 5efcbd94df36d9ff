package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/fulgurite/fulgurite/internal/progress"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// startRun starts the TrainingWorkflow of a spec under a run's name, or attaches
// to it if it is under way with the same spec.
func startRun(ctx context.Context, c client.Client, name string, s spec.Spec) (client.WorkflowRun, error) {
	input, err := encodeSpec(s)
	if err != nil {
		return nil, err
	}
	r, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: name, TaskQueue: workflows.QueueTraining,
		WorkflowIDReusePolicy:                    enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowIDConflictPolicy:                 enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		StaticSummary:                            fmt.Sprintf("training run %s", name),
	}, "TrainingWorkflow", input)
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &started) {
		return attach(ctx, c, name)
	}
	if err != nil {
		return nil, fmt.Errorf("start run %s: %w", name, err)
	}
	return r, nil
}

// attach finds a run that is under way; one that ended is refused.
func attach(ctx context.Context, c client.Client, name string) (client.WorkflowRun, error) {
	d, err := c.DescribeWorkflowExecution(ctx, name, "")
	if err != nil {
		return nil, fmt.Errorf("find run %s: %w", name, err)
	}
	if status := d.WorkflowExecutionInfo.Status; status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return nil, usagef("run %s has ended (%s): start it again under another --name, or see `fulgurite versions %s`", name, status, name)
	}
	return c.GetWorkflow(ctx, name, ""), nil
}

// pollEvery is how often a followed run is asked for its progress.
const pollEvery = 200 * time.Millisecond

// follow shows a run's progress until it ends or ctx does.
func follow(ctx context.Context, c client.Client, run client.WorkflowRun, d *progress.Display) (workflows.TrainingResult, error) {
	type ended struct {
		result workflows.TrainingResult
		err    error
	}
	done := make(chan ended, 1)
	go func() {
		var e ended
		e.err = run.Get(ctx, &e.result)
		done <- e
	}()
	v := viewer{client: c, run: run.GetID(), display: d}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case e := <-done:
			if ctx.Err() != nil {
				return e.result, ctx.Err()
			}
			v.show(ctx)
			return e.result, e.err
		case <-tick.C:
			v.show(ctx)
		}
	}
}

// viewer turns a run's progress into what the display shows.
type viewer struct {
	client  client.Client
	run     string
	display *progress.Display
	steps   int // shown so far
}

// show asks once. A run that can't answer at the moment is asked again soon.
func (v *viewer) show(ctx context.Context) {
	var p workflows.Progress
	if err := query(ctx, v.client, v.run, &p); err != nil {
		return
	}
	for _, point := range p.Curve {
		if point.Step > v.steps {
			v.display.Reward(point.Step, point.Reward)
			v.steps = point.Step
		}
	}
	v.display.Step(p.Step, p.Steps)
	v.display.Phase(string(p.Phase) + " " + p.Subject)
	switch p.Phase {
	case workflows.PhaseRollouts:
		v.display.Rollouts(p.Rollouts.Done, p.Rollouts.Total)
	case workflows.PhaseEvaluation:
		var n workflows.Count
		if query(ctx, v.client, p.Subject, &n) == nil {
			v.display.Evaluation(n.Done, n.Total)
		}
	case workflows.PhaseWarmStart:
		if n, ok := v.warmStart(ctx); ok {
			v.display.Phase(fmt.Sprintf("warm start, update %d", n))
		}
	}
}

// warmStart is how far the warm start is, from the heartbeat of its activity.
func (v *viewer) warmStart(ctx context.Context) (int, bool) {
	d, err := v.client.DescribeWorkflowExecution(ctx, v.run, "")
	if err != nil {
		return 0, false
	}
	for _, a := range d.PendingActivities {
		var beat struct {
			Updates int `json:"updates"`
		}
		if a.HeartbeatDetails != nil && converter.GetDefaultDataConverter().FromPayloads(a.HeartbeatDetails, &beat) == nil {
			return beat.Updates, true
		}
	}
	return 0, false
}

// query asks a workflow for its progress.
func query(ctx context.Context, c client.Client, id string, out any) error {
	value, err := c.QueryWorkflow(ctx, id, "", workflows.QueryProgress)
	if err != nil {
		return err
	}
	return value.Get(out)
}
