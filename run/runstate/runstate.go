// Package runstate finds out the status of runs: the status on record, corrected by what
// Temporal says. A workflow closes the record of its run when it ends. A workflow that
// was terminated, timed out or deleted can't do that, and one that was reset goes on
// although its record is closed.
//
// [Of] answers for one run and changes nothing. [Reconciler] corrects the record of all
// runs, when it starts and regularly after that; it may run in any number of processes.
// [Retrier] continues a run that has ended. If Temporal does not answer, no workflow is
// assumed to be gone.
package runstate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/common/v1"
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

// runningRuns finds the workflows that are runs and have not ended.
const runningRuns = "WorkflowType IN ('" + workflows.TypeTraining + "', '" + workflows.TypePrompts + "') AND ExecutionStatus = 'Running'"

// active returns the ids of the workflows of runs that are running. The list lags a
// little, so it only says where to look.
func active(ctx context.Context, c client.Client) (map[string]bool, error) {
	out := map[string]bool{}
	request := &workflowservice.ListWorkflowExecutionsRequest{PageSize: 1000, Query: runningRuns}
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

const (
	// blockedAfter is the attempt from which on an activity counts as blocked. The first
	// attempts also fail when a worker merely goes away.
	blockedAfter = 3
	// lookedInto bounds how many workflows below a run, and how many running runs, are
	// asked.
	lookedInto = 64
)

// Blockage is an activity, or a workflow task, that is tried again and again.
type Blockage struct {
	Workflow string `json:"workflow"`
	Activity string `json:"activity"`
	Attempt  int    `json:"attempt"`
	Failure  string `json:"failure,omitempty"`
	// Others counts further activities that the same failure blocks, of this workflow and
	// of others of the run.
	Others int `json:"others,omitempty"`
}

func (b Blockage) String() string {
	text := fmt.Sprintf("%s of %s is blocked, attempt %d: %s", b.Activity, b.Workflow, b.Attempt, b.Failure)
	if b.Others > 0 {
		text += fmt.Sprintf(" (and %d more are)", b.Others)
	}
	return text
}

// Key tells blockages apart. Numbers in a failure, such as addresses of attempts, ports and
// process ids, differ from try to try and from sample to sample, and make no other
// blockage.
func (b Blockage) Key() string {
	return b.Activity + " " + strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, b.Failure)
}

// Blockages lists what is blocked in a workflow and in those below it.
func Blockages(ctx context.Context, c client.Client, id string) ([]Blockage, error) {
	found, err := lookInto(ctx, c, id)
	return found.blocked, err
}

// inside has what a workflow and those below it are doing.
type inside struct {
	blocked []Blockage
	// started are the types of activities that a worker has taken.
	started map[string]bool
}

// lookInto asks Temporal about a workflow, its children, and theirs: an agent can be a
// workflow with activities of its own.
func lookInto(ctx context.Context, c client.Client, id string) (inside, error) {
	out := inside{started: map[string]bool{}}
	ids := []string{id}
	for n := 0; n < len(ids) && n <= lookedInto; n++ {
		d, err := c.DescribeWorkflowExecution(ctx, ids[n], "")
		var gone *serviceerror.NotFound
		if errors.As(err, &gone) {
			continue
		}
		if err != nil {
			return inside{}, fmt.Errorf("describe workflow %s: %w", ids[n], err)
		}
		for _, a := range d.PendingActivities {
			if a.State == enums.PENDING_ACTIVITY_STATE_STARTED {
				out.started[a.ActivityType.GetName()] = true
			}
			if a.Attempt >= blockedAfter {
				out.blocked = add(out.blocked, Blockage{
					Workflow: ids[n], Activity: a.ActivityType.GetName(), Attempt: int(a.Attempt), Failure: a.LastFailure.GetMessage(),
				})
			}
		}
		if attempt := d.PendingWorkflowTask.GetAttempt(); attempt >= blockedAfter {
			failure, err := taskFailure(ctx, c, d.WorkflowExecutionInfo.Execution)
			if err != nil {
				return inside{}, err
			}
			out.blocked = add(out.blocked, Blockage{Workflow: ids[n], Activity: "workflow task", Attempt: int(attempt), Failure: failure})
		}
		for _, child := range d.PendingChildren {
			ids = append(ids, child.WorkflowId)
		}
	}
	return out, nil
}

// taskFailure returns why a workflow's last failed workflow task failed. Temporal records
// only the first failure of a task that is tried again and again.
func taskFailure(ctx context.Context, c client.Client, of *common.WorkflowExecution) (string, error) {
	failure := "no worker has finished it"
	for it := c.GetWorkflowHistory(ctx, of.WorkflowId, of.RunId, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
		e, err := it.Next()
		if err != nil {
			return "", fmt.Errorf("read the history of workflow %s: %w", of.WorkflowId, err)
		}
		if failed := e.GetWorkflowTaskFailedEventAttributes(); failed != nil {
			failure = cmp.Or(failed.Failure.GetMessage(), failed.Cause.String())
		}
	}
	return failure, nil
}

// add appends a blockage. What is blocked by one failure counts once, at the attempt of the
// one that was tried most often.
func add(all []Blockage, b Blockage) []Blockage {
	for i, other := range all {
		if other.Key() == b.Key() {
			all[i].Attempt = max(other.Attempt, b.Attempt)
			all[i].Others++
			return all
		}
	}
	return append(all, b)
}

// Leases tells which services are up; the store implements it.
type Leases interface {
	Leases(ctx context.Context, role record.Role) ([]record.Lease, error)
}

// Obstacles are all that can keep a run from going on without ending it.
type Obstacles struct {
	Idle    []string      // queues that no worker polls
	Blocked []Blockage    // what is tried again and again
	Absent  []record.Role // services without which agents wait
}

// Find looks for the obstacles of a run. agents is the queue of its agents. If l is nil,
// it is not known which services are up, and Absent stays empty.
func Find(ctx context.Context, c client.Client, run, agents string, l Leases) (out Obstacles, err error) {
	now, err := lookInto(ctx, c, run)
	if err != nil {
		return out, err
	}
	out.Blocked = now.blocked
	if out.Idle, err = IdleQueues(ctx, c, agents); err != nil {
		return out, err
	}
	if now.started["RunAgent"] {
		// A worker whose slots are all taken does not poll, like a trainer that works.
		out.Idle = slices.DeleteFunc(out.Idle, func(q string) bool { return q == agents })
	}
	if l == nil {
		return out, nil
	}
	for _, role := range []record.Role{record.Gateway, record.Sampler} {
		up, err := l.Leases(ctx, role)
		if err != nil {
			return out, err
		}
		if len(up) == 0 {
			out.Absent = append(out.Absent, role)
		}
	}
	return out, nil
}

// Lines describes each obstacle in words. Failures are texts of other programs.
func (o Obstacles) Lines() []string {
	var out []string
	for _, q := range o.Idle {
		out = append(out, fmt.Sprintf("no worker polls queue %s: the run waits until one does", q))
	}
	for _, role := range o.Absent {
		out = append(out, fmt.Sprintf("no %s is up: agents wait until one is", role))
	}
	for _, b := range o.Blocked {
		out = append(out, b.String())
	}
	return out
}

// IdleQueues lists the queues of a run that no worker polls.
func IdleQueues(ctx context.Context, c client.Client, agents string) ([]string, error) {
	var idle []string
	for _, q := range []struct {
		name string
		kind enums.TaskQueueType
	}{
		{workflows.QueueTraining, enums.TASK_QUEUE_TYPE_WORKFLOW},
		{agents, enums.TASK_QUEUE_TYPE_ACTIVITY},
		{workflows.QueueTrainGPU, enums.TASK_QUEUE_TYPE_ACTIVITY},
	} {
		d, err := c.DescribeTaskQueue(ctx, q.name, q.kind)
		if err != nil {
			return nil, fmt.Errorf("describe queue %s: %w", q.name, err)
		}
		if len(d.Pollers) > 0 {
			continue
		}
		if q.name == workflows.QueueTrainGPU {
			busy, err := TrainerWorks(ctx, c)
			if err != nil {
				return nil, err
			}
			if busy {
				continue
			}
		}
		idle = append(idle, q.name)
	}
	return idle, nil
}

// TrainerWorks reports whether a worker has taken an activity from the training queue,
// for any run. A trainer takes one activity at a time and does not poll meanwhile, so
// Temporal stops listing it as a poller after five minutes.
func TrainerWorks(ctx context.Context, c client.Client) (bool, error) {
	runs, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		PageSize: lookedInto, Query: runningRuns,
	})
	if err != nil {
		return false, fmt.Errorf("list running workflows: %w", err)
	}
	for _, r := range runs.Executions {
		d, err := c.DescribeWorkflowExecution(ctx, r.Execution.WorkflowId, r.Execution.RunId)
		if err != nil {
			return false, fmt.Errorf("describe workflow %s: %w", r.Execution.WorkflowId, err)
		}
		for _, a := range d.PendingActivities {
			switch a.ActivityType.GetName() {
			case "InitPolicy", "TrainStep", "TrainCritic", "ScoreBatch", "ScoreReference":
				if a.State == enums.PENDING_ACTIVITY_STATE_STARTED {
					return true, nil
				}
			}
		}
	}
	return false, nil
}

// Ask asks for the progress of a run under way and for its obstacles. If the run itself
// does not answer, progress is nil and unanswered says why. agents is the queue of the
// run's agents.
func Ask(ctx context.Context, c client.Client, run, agents string, l Leases) (progress *workflows.Progress, found Obstacles, unanswered, err error) {
	if found, err = Find(ctx, c, run, agents, l); err != nil {
		return nil, found, nil, err
	}
	p, unanswered := Progress(ctx, c, run)
	if unanswered == nil {
		progress = &p
	}
	return progress, found, unanswered, nil
}

// Progress asks a run for its progress, and the evaluation that is under way, if one is,
// for its number of rollouts.
func Progress(ctx context.Context, c client.Client, run string) (p workflows.Progress, err error) {
	if err := Query(ctx, c, run, &p); err != nil || p.Phase != workflows.PhaseEvaluation {
		return p, err
	}
	if Query(ctx, c, p.Subject, &p.Rollouts) != nil {
		p.Rollouts = workflows.Count{} // it has not begun, or has just ended
	}
	return p, nil
}

// Query asks a workflow for its progress.
func Query(ctx context.Context, c client.Client, id string, out any) error {
	value, err := c.QueryWorkflow(ctx, id, "", workflows.QueryProgress)
	if err != nil {
		return err
	}
	return value.Get(out)
}
