package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/workflows"
)

// inputOf returns the input of an action's Update.
func inputOf(a record.Action) any {
	switch a.Name {
	case record.ActionSet:
		return workflows.SetInput{By: a.By, Values: a.Input.Values}
	case record.ActionApprove, record.ActionReject:
		in := workflows.VerdictInput{By: a.By, Reason: a.Reason}
		if v := a.Input.Version; v != nil {
			in.Version = *v
		}
		return in
	}
	return workflows.ControlInput{By: a.By, Reason: a.Reason}
}

// update sends the action to the run's workflow, as the Update with the action's name.
func (o Operator) update(ctx context.Context, a record.Action) (out record.ActionResult, err error) {
	c, _, done, err := o.Dial(ctx)
	if err != nil {
		return out, err
	}
	defer done()
	limit := cmp.Or(o.Timeout, answerTimeout)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var r workflows.UpdateResult
	handle, err := c.UpdateWorkflow(limited, client.UpdateWorkflowOptions{
		UpdateID: a.ID, WorkflowID: a.Run, UpdateName: string(a.Name), Args: []any{inputOf(a)}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(limited, &r)
	}
	var refused *temporal.ApplicationError
	var unknown *serviceerror.NotFound
	switch {
	case err == nil:
		return record.ActionResult{Message: r.Message, Step: r.Step}, nil
	case errors.As(err, &refused):
		return out, Refuse("%s", refused.Message())
	case errors.As(err, &unknown):
		return out, refusal{"it is not under way", ErrNotUnderWay}
	case ctx.Err() == nil && errors.Is(limited.Err(), context.DeadlineExceeded):
		return out, fmt.Errorf("%w within %s: is there a worker for it?", ErrNoAnswer, limit)
	}
	return out, err
}

// The waits of end for a run that was asked to end.
const (
	endTimeout = 15 * time.Second
	endPoll    = 200 * time.Millisecond
)

// end ends a run at once, whatever it waits for. It cancels the run's workflow, which then
// closes the record. If nothing does that in time, for example because no worker is there,
// it terminates the workflow; the record is closed when a worker or a command next looks.
func (o Operator) end(ctx context.Context, a record.Action) (out record.ActionResult, err error) {
	c, _, done, err := o.Dial(ctx)
	if err != nil {
		return out, err
	}
	defer done()
	var unknown *serviceerror.NotFound
	ended := func() (bool, error) {
		d, err := c.DescribeWorkflowExecution(ctx, a.Run, "")
		if errors.As(err, &unknown) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("describe workflow %s: %w", a.Run, err)
		}
		return d.WorkflowExecutionInfo.Status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING, nil
	}
	before, err := ended()
	if before {
		return out, refusal{"it is not under way", ErrNotUnderWay}
	}
	if err == nil {
		err = c.CancelWorkflow(ctx, a.Run, "")
	}
	if err != nil {
		return out, fmt.Errorf("cancel workflow %s: %w", a.Run, err)
	}
	out.Message = "ended at once by " + a.By
	limit := time.NewTimer(cmp.Or(o.Timeout, endTimeout))
	defer limit.Stop()
	tick := time.NewTicker(endPoll)
	defer tick.Stop()
	for {
		if now, err := ended(); now || err != nil {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-tick.C:
			continue
		case <-limit.C:
		}
		reason := strings.TrimSuffix("stopped at once by "+a.By+": "+a.Reason, ": ")
		if err := c.TerminateWorkflow(ctx, a.Run, "", reason); err != nil && !errors.As(err, &unknown) {
			return out, fmt.Errorf("terminate workflow %s: %w", a.Run, err)
		}
		return out, nil
	}
}

// retry makes the run continue where it ended.
func (o Operator) retry(ctx context.Context, a record.Action) (out record.ActionResult, err error) {
	run, err := o.Store.Run(ctx, a.Run)
	if errors.Is(err, trace.ErrNotFound) {
		return out, Refuse("there is no run of that name")
	}
	if err != nil {
		return out, err
	}
	c, namespace, done, err := o.Dial(ctx)
	if err != nil {
		return out, err
	}
	defer done()
	reason := "retried by " + a.By
	if a.Reason != "" {
		reason += ": " + a.Reason
	}
	retrier := runstate.Retrier{Client: c, Namespace: namespace, Store: o.Store}
	if len(a.Input.Values) > 0 {
		return o.retryWith(ctx, retrier, run, a)
	}
	execution, err := retrier.Retry(ctx, run, reason)
	if errors.Is(err, runstate.ErrNotRetried) {
		return out, Refuse("%s", err)
	}
	return record.ActionResult{Message: "it goes on, retried by " + a.By, Execution: execution}, err
}

// retryWith makes the run continue with other numbers for keys of its spec.
func (o Operator) retryWith(ctx context.Context, retrier runstate.Retrier, run record.Run, a record.Action) (out record.ActionResult, err error) {
	limit := cmp.Or(o.Timeout, answerTimeout)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	execution, step, err := retrier.RetryWith(limited, run, a.ID, workflows.SetInput{By: a.By, Values: a.Input.Values})
	switch {
	case errors.Is(err, runstate.ErrNotRetried):
		return out, Refuse("%s", err)
	case err != nil && ctx.Err() == nil && errors.Is(limited.Err(), context.DeadlineExceeded):
		return out, fmt.Errorf("%w within %s: is there a worker for it?", ErrNoAnswer, limit)
	}
	return record.ActionResult{Message: fmt.Sprintf("it goes on with step %d, set and retried by %s", step, a.By), Step: step, Execution: execution}, err
}

// move moves the promoted pointer, even if the run has ended.
func (o Operator) move(ctx context.Context, a record.Action) (out record.ActionResult, err error) {
	m := mover{Store: o.Store, Run: a.Run, Policy: model.DefaultPolicy, By: a.By, ID: a.ID, Moves: a.Input.Moves}
	var p record.Promotion
	switch a.Name {
	case record.ActionPromote:
		p, err = m.Promote(ctx, *a.Input.Version, a.Reason)
	case record.ActionRollback:
		p, err = m.Rollback(ctx, a.Input.Version, a.Reason)
	case record.ActionPin:
		p, err = m.Pin(ctx, *a.Input.Version, a.Reason)
	default:
		p, err = m.Unpin(ctx, a.Reason)
	}
	switch {
	case errors.Is(err, trace.ErrNotFound):
		return out, Refuse("there is no run of that name")
	case err != nil:
		return out, err
	}
	return record.ActionResult{Message: report.Move(p)}, nil
}
