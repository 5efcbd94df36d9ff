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
	options := client.StartWorkflowOptions{
		ID: name, TaskQueue: workflows.QueueTraining,
		WorkflowIDReusePolicy:                    enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowIDConflictPolicy:                 enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		StaticSummary:                            fmt.Sprintf("training run %s", name),
		Memo:                                     map[string]any{memoDigest: spec.Digest(s)},
	}
	r, err := c.ExecuteWorkflow(ctx, options, "TrainingWorkflow", input)
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &started) && wasRefused(ctx, c, name) {
		options.WorkflowIDReusePolicy = enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY
		r, err = c.ExecuteWorkflow(ctx, options, "TrainingWorkflow", input)
	}
	if errors.As(err, &started) {
		return attach(ctx, c, name, spec.Digest(s))
	}
	if err != nil {
		return nil, fmt.Errorf("start run %s: %w", name, err)
	}
	return r, nil
}

// wasRefused reports whether a workflow ended because its spec was refused, so that
// its name is free.
func wasRefused(ctx context.Context, c client.Client, name string) bool {
	d, err := c.DescribeWorkflowExecution(ctx, name, "")
	return err == nil && d.WorkflowExecutionInfo.Status == enums.WORKFLOW_EXECUTION_STATUS_FAILED &&
		refused(c.GetWorkflow(ctx, name, d.WorkflowExecutionInfo.Execution.RunId).Get(ctx, nil))
}

// memoDigest is where a run's workflow carries the digest of its spec.
const memoDigest = "spec_digest"

// attach finds a run that is under way with the spec of that digest; one that
// ended, or has another, is refused.
func attach(ctx context.Context, c client.Client, name, digest string) (client.WorkflowRun, error) {
	d, err := c.DescribeWorkflowExecution(ctx, name, "")
	if err != nil {
		return nil, fmt.Errorf("find run %s: %w", name, err)
	}
	execution := d.WorkflowExecutionInfo
	if status := execution.Status; status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		other := fmt.Sprintf("see `fulgurite versions %s`", name)
		if status != enums.WORKFLOW_EXECUTION_STATUS_COMPLETED {
			other = fmt.Sprintf("let this one go on with `fulgurite retry %s`", name)
		}
		return nil, usagef("run %s has ended (%s): start it again under another --name, or %s", name, status, other)
	}
	var started string
	if p := execution.Memo.GetFields()[memoDigest]; p != nil {
		if err := converter.GetDefaultDataConverter().FromPayload(p, &started); err != nil {
			return nil, fmt.Errorf("read the memo of run %s: %w", name, err)
		}
	}
	if started != digest {
		return nil, usagef("run %s is under way with another spec: start this one under another --name, or see `fulgurite status %s`", name, name)
	}
	return c.GetWorkflow(ctx, name, ""), nil
}

// underWay says whether Temporal still runs it: a run that was terminated there
// could not close its own record.
func underWay(ctx context.Context, c client.Client, name string) (bool, error) {
	d, err := c.DescribeWorkflowExecution(ctx, name, "")
	var unknown *serviceerror.NotFound
	if errors.As(err, &unknown) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find run %s: %w", name, err)
	}
	return d.WorkflowExecutionInfo.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING, nil
}

// pollEvery is how often a followed run is asked for its progress.
const pollEvery = 200 * time.Millisecond

// follow shows a run's progress until it ends or ctx does.
func follow(ctx context.Context, c client.Client, run client.WorkflowRun, s spec.Spec, d *progress.Display) (workflows.TrainingResult, error) {
	return followThrough(ctx, c, run, s, d, "", nil)
}

// followThrough also says when Temporal is away and when it is back; remedy says what
// brings it back, and space whether there is space for the state.
func followThrough(ctx context.Context, c client.Client, run client.WorkflowRun, s spec.Spec, d *progress.Display, remedy string, space func() (string, bool)) (workflows.TrainingResult, error) {
	type ended struct {
		result workflows.TrainingResult
		err    error
	}
	done := make(chan ended, 1)
	go func() {
		var e ended
		e.err = outlast(ctx, func() error { return run.Get(ctx, &e.result) })
		done <- e
	}()
	v := viewer{client: c, run: run.GetID(), spec: s, display: d, absence: absence{remedy: remedy, space: space}}
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
	client   client.Client
	run      string
	spec     spec.Spec
	display  *progress.Display
	step     int // under way; 0 before the first
	rewards  int // the last step whose reward was shown
	promoted int
	pending  int // the last candidate that was said to wait
	poisoned int // quarantined tasks that were told
	absence  absence
}

// show asks once. A run that can't answer at the moment is asked again soon.
func (v *viewer) show(ctx context.Context) {
	var p workflows.Progress
	limited, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	err := query(limited, v.client, v.run, &p)
	v.absence.note(ctx, v.client, err, v.display)
	if err != nil {
		return
	}
	v.showCurve(p)
	// Version 0 is made and evaluated before the first step.
	if p.Step > 0 || v.step > 0 || p.Phase == workflows.PhaseRollouts || p.Phase == workflows.PhaseUpdate {
		v.step = min(p.Step+1, p.Steps)
	}
	v.display.Step(v.step, p.Steps)
	switch p.Phase {
	case workflows.PhaseRollouts:
		v.display.Rollouts(p.Rollouts.Done, p.Rollouts.Total)
	case workflows.PhaseEvaluation:
		var n workflows.Count
		if query(ctx, v.client, p.Subject, &n) == nil {
			v.display.Evaluation(n.Done, n.Total)
		}
	case workflows.PhaseWarmStart:
		v.showWarmStart(ctx)
	default:
		v.display.Phase(string(p.Phase))
	}
}

// showCurve shows the rewards and the promotion that are new.
func (v *viewer) showCurve(p workflows.Progress) {
	for _, point := range p.Curve {
		if point.Step > v.rewards {
			v.display.Reward(point.Step, point.Reward)
			v.rewards = point.Step
		}
		if point.Gate != nil && point.Step == p.Promoted && point.Step > v.promoted {
			v.display.Println(fmt.Sprintf("version %d is promoted: reward %.3f on the gate split", point.Step, *point.Gate))
			v.promoted = point.Step
		}
	}
	if p.Pending != nil && p.Pending.Decision.Candidate > v.pending {
		v.pending = p.Pending.Decision.Candidate
		d := p.Pending.Decision
		v.display.Println(fmt.Sprintf("version %d earns %.3f on the gate split against %.3f of version %d, and waits for `fulgurite approve %s` or `fulgurite reject %s` until %s",
			v.pending, d.Reward, d.Baseline, d.Promoted, v.run, v.run, p.Pending.Deadline.Local().Format(time.DateTime)))
	}
	if p.Quarantined > v.poisoned {
		v.poisoned = p.Quarantined
		v.display.Println(fmt.Sprintf("%d tasks failed for reasons of their own and are quarantined: see `fulgurite report %s`", p.Quarantined, v.run))
	}
}

// showWarmStart shows how far it is, from the heartbeat of its activity.
func (v *viewer) showWarmStart(ctx context.Context) {
	if v.spec.Model.WarmStart == nil {
		v.display.Phase("loading")
		return
	}
	var beat struct {
		Updates int `json:"updates"`
	}
	d, err := v.client.DescribeWorkflowExecution(ctx, v.run, "")
	if err != nil {
		return
	}
	for _, a := range d.PendingActivities {
		if a.HeartbeatDetails != nil {
			// Details of another form are another activity's.
			_ = converter.GetDefaultDataConverter().FromPayloads(a.HeartbeatDetails, &beat)
		}
	}
	v.display.WarmStart(beat.Updates, v.spec.Model.WarmStart.Updates)
}

// query asks a workflow for its progress.
func query(ctx context.Context, c client.Client, id string, out any) error {
	value, err := c.QueryWorkflow(ctx, id, "", workflows.QueryProgress)
	if err != nil {
		return err
	}
	return value.Get(out)
}
