package runstate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/workflows"
)

// Of returns the run of a record: the record itself, or what it would say if the workflow
// had been able to close it. An error means that Temporal could not be asked.
//
// A run is under way again if it was reset after it had ended.
func Of(ctx context.Context, c client.Client, r record.Run) (record.Run, error) {
	if r.Status == record.Refused {
		return r, nil
	}
	d, err := latest(ctx, c, r)
	if err != nil {
		return r, fmt.Errorf("ask Temporal about run %s: %w", r.Name, err)
	}
	running := d != nil && underWay(d.WorkflowExecutionInfo.Status)
	switch {
	case r.Status == record.Running && !running:
		return endedRun(ctx, c, r, d)
	case r.Status != record.Running && running && resetSince(d, r):
		// resetSince excludes a workflow that has closed its record and is about to end.
		r.Status, r.Result, r.Finished = record.Running, nil, time.Time{}
	}
	return r, nil
}

// resetSince reports whether an execution was made by a reset after a run had ended.
func resetSince(d *workflowservice.DescribeWorkflowExecutionResponse, r record.Run) bool {
	return d.GetWorkflowExtendedInfo().GetLastResetTime().AsTime().After(r.Finished)
}

// underWay reports whether a workflow has not ended. A workflow that is paused in
// Temporal has not ended.
func underWay(s enums.WorkflowExecutionStatus) bool {
	return s == enums.WORKFLOW_EXECUTION_STATUS_RUNNING || s == enums.WORKFLOW_EXECUTION_STATUS_PAUSED
}

// All returns what Of returns for all runs of a store. It does not look at runs that
// ended and are not running again.
func All(ctx context.Context, c client.Client, runs []record.Run) ([]record.Run, error) {
	active, err := active(ctx, c)
	if err != nil {
		return runs, err
	}
	out := slices.Clone(runs)
	for i, r := range runs {
		if r.Status != record.Running && !active[r.WorkflowID] {
			continue
		}
		if out[i], err = Of(ctx, c, r); err != nil {
			return runs, err
		}
	}
	return out, nil
}

// active returns the ids of the training workflows that are running. The list lags a
// little, so it only says where to look.
func active(ctx context.Context, c client.Client) (map[string]bool, error) {
	out := map[string]bool{}
	request := &workflowservice.ListWorkflowExecutionsRequest{PageSize: 1000, Query: "WorkflowType = 'TrainingWorkflow' AND ExecutionStatus = 'Running'"}
	for {
		page, err := c.ListWorkflow(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("list running workflows: %w", err)
		}
		for _, e := range page.Executions {
			out[e.Execution.WorkflowId] = true
		}
		if request.NextPageToken = page.NextPageToken; len(page.NextPageToken) == 0 {
			return out, nil
		}
	}
}

// latest returns the last execution of the chain that a run belongs to, nil if Temporal
// does not have it. The workflow's id may belong to another chain by now.
func latest(ctx context.Context, c client.Client, r record.Run) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	execution := ""
	for {
		d, err := c.DescribeWorkflowExecution(ctx, r.WorkflowID, execution)
		var unknown *serviceerror.NotFound
		if errors.As(err, &unknown) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if execution == "" {
			if d.WorkflowExecutionInfo.FirstRunId == r.ExecutionID {
				return d, nil
			}
			execution = r.ExecutionID
			continue
		}
		next := d.GetWorkflowExtendedInfo().GetResetRunId()
		if d.WorkflowExecutionInfo.Status == enums.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW {
			last, err := closing(ctx, c, r.WorkflowID, execution)
			if err != nil {
				return nil, err
			}
			next = cmp.Or(next, last.GetWorkflowExecutionContinuedAsNewEventAttributes().GetNewExecutionRunId())
		}
		if next == "" || next == execution {
			return d, nil
		}
		execution = next
	}
}

// closing returns the last event of an execution that is closed.
func closing(ctx context.Context, c client.Client, id, execution string) (*history.HistoryEvent, error) {
	it := c.GetWorkflowHistory(ctx, id, execution, false, enums.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
	if !it.HasNext() {
		return nil, nil
	}
	return it.Next()
}

// endedRun returns r, closed in the way that its last execution d ended. If d is nil, the
// workflow was deleted.
func endedRun(ctx context.Context, c client.Client, r record.Run, d *workflowservice.DescribeWorkflowExecutionResponse) (record.Run, error) {
	if d == nil {
		r.Status, r.Finished, r.Result = record.Deleted, time.Now(), deleted()
		return r, nil
	}
	info := d.WorkflowExecutionInfo
	last, err := closing(ctx, c, r.WorkflowID, info.Execution.RunId)
	if err != nil {
		return r, fmt.Errorf("ask Temporal how run %s ended: %w", r.Name, err)
	}
	r.Finished = info.CloseTime.AsTime()
	r.Status, r.Result = end(info.Status, last)
	return r, nil
}

// deleted returns the result of a run whose workflow is not in Temporal any more.
func deleted() json.RawMessage {
	return record.Failure{Error: "its workflow is no longer in Temporal: somebody deleted it, or its retention ended"}.Result()
}

// If a running workflow is deleted, Temporal terminates it with this identity and this
// reason, and removes it a moment later.
const (
	deletedBy     = "history-service"
	deletedReason = "Delete workflow execution"
)

// end returns the status and the result of a run whose last execution ended with status
// s. last is the last event of its history.
func end(s enums.WorkflowExecutionStatus, last *history.HistoryEvent) (record.Status, json.RawMessage) {
	switch s {
	case enums.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		var result json.RawMessage
		if err := converter.GetDefaultDataConverter().FromPayloads(last.GetWorkflowExecutionCompletedEventAttributes().GetResult(), &result); err != nil {
			return record.Completed, nil
		}
		stopped := record.Run{Status: record.Stopped, Result: result}
		if stopped.Stop() != nil {
			return record.Stopped, result
		}
		return record.Completed, result
	case enums.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		a := last.GetWorkflowExecutionTerminatedEventAttributes()
		if a.GetIdentity() == deletedBy && a.GetReason() == deletedReason {
			return record.Deleted, deleted()
		}
		return record.Terminated, record.Failure{
			By:    a.GetIdentity(),
			Error: "terminated by " + cmp.Or(a.GetIdentity(), "somebody") + ": " + cmp.Or(a.GetReason(), "no reason was given"),
		}.Result()
	case enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return record.TimedOut, record.Failure{Error: "its workflow took longer than the limit that it was started with"}.Result()
	case enums.WORKFLOW_EXECUTION_STATUS_CANCELED:
		return record.Cancelled, record.Failure{Error: "cancelled"}.Result()
	default:
		failure := temporal.GetDefaultFailureConverter().FailureToError(last.GetWorkflowExecutionFailedEventAttributes().GetFailure())
		if failure == nil {
			return record.Failed, record.Failure{Error: "failed"}.Result()
		}
		return record.Failed, workflows.Failure(failure).Result()
	}
}

// stuck reports whether an execution waits forever for a child. It does if a reset made
// the execution from a history in which the child is still under way, but the child had
// already ended. Temporal does not report that end again.
func stuck(ctx context.Context, c client.Client, d *workflowservice.DescribeWorkflowExecutionResponse) (bool, error) {
	for _, child := range d.PendingChildren {
		if child.RunId == "" {
			continue
		}
		s, err := c.DescribeWorkflowExecution(ctx, child.WorkflowId, child.RunId)
		var unknown *serviceerror.NotFound
		if errors.As(err, &unknown) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		switch info := s.WorkflowExecutionInfo; info.Status {
		case enums.WORKFLOW_EXECUTION_STATUS_RUNNING, enums.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW:
		default:
			if s.GetWorkflowExtendedInfo().GetResetRunId() == "" && info.CloseTime.AsTime().Before(d.GetWorkflowExtendedInfo().GetLastResetTime().AsTime()) {
				return true, nil
			}
		}
	}
	return false, nil
}
