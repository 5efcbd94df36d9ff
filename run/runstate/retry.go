package runstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// ErrNotRetried is wrapped when a run can't go on, with the reason.
var ErrNotRetried = errors.New("it can't go on")

var errNoWorkflow = fmt.Errorf("%w: its workflow is no longer in Temporal; start its spec under another name", ErrNotRetried)

// errEnded says why a run whose workflow completed can't go on.
func errEnded(run record.Run) error {
	if searches(run) {
		return fmt.Errorf("%w: its search has ended; start its spec under another name, for example with a larger optimizer.budget, or budget", ErrNotRetried)
	}
	if run.Status == record.Stopped {
		if stop := run.Stop(); stop != nil && strings.HasPrefix(stop.Reason, "budget.") {
			key, _, _ := strings.Cut(stop.Reason, " ")
			return fmt.Errorf("%w: %s; `%s` lets it go on to step N", ErrNotRetried, stop.Reason, shell.Command("retry", run.Name, "--steps", "N", "--set", key+"=NUMBER"))
		}
		return fmt.Errorf("%w: it was stopped; `%s` lets it go on to step N", ErrNotRetried, shell.Command("retry", run.Name, "--steps", "N"))
	}
	return fmt.Errorf("%w: it has completed; `%s` lets it go on to step N", ErrNotRetried, shell.Command("retry", run.Name, "--steps", "N"))
}

// searches reports whether a run searches for prompts.
func searches(run record.Run) bool {
	s, err := spec.Stored(run.Spec)
	return err == nil && s.Optimizer != nil
}

// Retrier lets runs go on that failed or were ended.
type Retrier struct {
	Client    client.Client
	Namespace string
	Store     interface {
		Store
		ForgetQuarantines(ctx context.Context, run string) error
		Forgotten(ctx context.Context, run string) ([]record.Forgotten, error)
		RebindRun(ctx context.Context, r record.Run, execution string) error
	}
}

// Retry continues a run where it ended, and returns its new execution. It resets the
// workflow to before the first command that failed or was cut off. So the history still
// has everything that a person decided, and what is on record is not done again. Asking
// twice gives the same execution. Temporal keeps the reason.
func (r Retrier) Retry(ctx context.Context, run record.Run, reason string) (execution string, err error) {
	if err := r.whole(ctx, run.Name); err != nil {
		return "", err
	}
	d, err := closed(ctx, r.Client, run)
	if err != nil {
		return "", fmt.Errorf("ask Temporal about run %s: %w", run.Name, err)
	}
	if d == nil {
		return "", errNoWorkflow
	}
	switch status := d.WorkflowExecutionInfo.Status; status {
	case enums.WORKFLOW_EXECUTION_STATUS_RUNNING, enums.WORKFLOW_EXECUTION_STATUS_PAUSED:
		return "", fmt.Errorf("%w: it is under way", ErrNotRetried)
	case enums.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		return "", errEnded(run)
	}
	events, err := historyOf(ctx, r.Client, d)
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) { // it is being deleted
		return "", errNoWorkflow
	}
	if err != nil {
		return "", fmt.Errorf("read the history of run %s: %w", run.Name, err)
	}
	at, whole := Point(run.Name, events)
	if at == 0 {
		return "", fmt.Errorf("%w: its workflow ended before it began; start its spec under another name", ErrNotRetried)
	}
	if whole {
		if err := r.Store.ForgetQuarantines(ctx, run.Name); err != nil {
			return "", err
		}
	}
	if execution, err = rewind(ctx, r.Client, r.Namespace, d, at, reason); err != nil {
		return "", err
	}
	current, err := r.Store.Run(ctx, run.Name)
	if err == nil && current.Status != record.Running && current.Status != record.Refused {
		err = r.Store.ReopenRun(ctx, current)
	}
	if errors.Is(err, record.ErrConflict) || errors.Is(err, record.ErrNotFound) {
		err = nil // it has ended again already, or was never on record
	}
	return execution, err
}

// whole returns an error if something was removed from a run.
func (r Retrier) whole(ctx context.Context, run string) error {
	removed, err := r.Store.Forgotten(ctx, run)
	removed = slices.DeleteFunc(removed, func(f record.Forgotten) bool { // a run can go on without conversations that it has not learned from
		steps, _ := record.ForgottenSteps([]record.Forgotten{f})
		return f.What == record.ForgottenUser && len(steps) == 0
	})
	if err != nil || len(removed) == 0 {
		return err
	}
	what := "the bodies of its calls were removed"
	switch removed[0].What {
	case record.ForgottenTask:
		what = fmt.Sprintf("its task %q was %s", removed[0].Task, record.ErrForgotten)
	case record.ForgottenUser:
		what = fmt.Sprintf("what one of its users said was %s", record.ErrForgotten)
	case record.ForgottenRun:
		what = "its removal was begun"
	}
	return fmt.Errorf("%w: %s on %s by %s; start its spec under another name", ErrNotRetried, what, readable.Time(removed[0].Begun), removed[0].By)
}

// A workflow closes the record of its run a moment before it ends.
const (
	closePoll    = 100 * time.Millisecond
	closeTimeout = 5 * time.Second
)

// closed returns what latest returns, but first waits for a workflow that is about to
// end.
func closed(ctx context.Context, c client.Client, run record.Run) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	limit := time.NewTimer(closeTimeout)
	defer limit.Stop()
	for {
		d, err := latest(ctx, c, run)
		if err != nil || d == nil || run.Status == record.Running || !underWay(d.WorkflowExecutionInfo.Status) || resetSince(d, run) {
			return d, err
		}
		pause := time.NewTimer(closePoll)
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil, ctx.Err()
		case <-limit.C:
			pause.Stop()
			return d, nil
		case <-pause.C:
		}
	}
}

func historyOf(ctx context.Context, c client.Client, d *workflowservice.DescribeWorkflowExecutionResponse) ([]*history.HistoryEvent, error) {
	execution := d.WorkflowExecutionInfo.Execution
	var events []*history.HistoryEvent
	for it := c.GetWorkflowHistory(ctx, execution.WorkflowId, execution.RunId, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
		e, err := it.Next()
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

// rewind resets an execution to before a workflow task.
func rewind(ctx context.Context, c client.Client, namespace string, d *workflowservice.DescribeWorkflowExecutionResponse, at int64, reason string) (string, error) {
	execution := d.WorkflowExecutionInfo.Execution
	r, err := c.ResetWorkflowExecution(ctx, &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: namespace, WorkflowExecution: &common.WorkflowExecution{WorkflowId: execution.WorkflowId, RunId: execution.RunId},
		Reason: reason, WorkflowTaskFinishEventId: at, RequestId: "retry-" + execution.RunId,
		// Updates and signals since then are applied again; a request to cancel never is.
	})
	if err != nil {
		return "", fmt.Errorf("reset workflow %s to event %d: %w", execution.WorkflowId, at, err)
	}
	return r.RunId, nil
}

// Point returns the workflow task of a run's history at which a retry can go on: the
// first task of the unfinished step that asked for something that failed or was cut off.
// It is 0 if there is none. whole reports that all commands of the unfinished steps are
// issued again.
func Point(run string, events []*history.HistoryEvent) (at int64, whole bool) {
	h := summarize(events)
	if h.first == 0 {
		return 0, false
	}
	begins := cmp.Or(h.unfinishedSince(run), h.last, h.first)
	if at = cmp.Or(h.last, h.first); h.failed {
		at = begins
	}
	for _, c := range h.commands {
		if c.endedAt == 0 || c.failed && c.step(run) >= h.steps { // earlier steps tolerated their failures
			at = min(at, c.task)
		}
	}
	// The run would wait forever for a child that ended after that point: Temporal
	// reported the child's end to the execution before the reset.
	for {
		before := at
		for _, c := range h.commands {
			if c.child != "" && c.task < at && (c.endedAt == 0 || c.endedAt > at) {
				at = c.task
			}
		}
		if at == before {
			return at, at <= begins
		}
	}
}

// unfinishedSince returns the workflow task that asked for the first child of the
// unfinished step, 0 if there is none. If a run fails although nothing fails under it,
// the results of that step are at fault, and the whole step is done again.
func (h eventSummary) unfinishedSince(run string) int64 {
	at := int64(0)
	for _, c := range h.commands {
		if c.child != "" && c.step(run) > h.steps && (at == 0 || c.task < at) {
			at = c.task
		}
	}
	return at
}

// command is an activity or a child that a workflow asked for.
type command struct {
	task    int64  // the workflow task that asked
	child   string // its workflow id; empty for an activity
	after   int    // steps that were finished by then
	endedAt int64  // 0 if it did not end
	failed  bool   // it ended without completing
}

// step returns the step of a command: for a child the step in its id, for an activity the
// step that was under way.
func (c *command) step(run string) int {
	var kind string
	step := c.after + 1
	if c.child == "" {
		return step
	}
	name := strings.NewReplacer("-", " ", "/", " ").Replace(strings.TrimPrefix(c.child, run+"/"))
	if n, _ := fmt.Sscan(name, &kind, &step); n < 2 {
		return c.after + 1
	}
	return step
}

// eventSummary holds the parts of a history that Point needs.
type eventSummary struct {
	first    int64 // the first workflow task that completed
	last     int64 // the last one before a request to cancel
	failed   bool  // the workflow failed
	steps    int   // steps that were finished, in this execution or before it
	commands map[int64]*command
}

func summarize(events []*history.HistoryEvent) eventSummary {
	h := eventSummary{commands: map[int64]*command{}}
	records := map[int64]bool{}
	at, cancelled := int64(0), false
	end := func(id int64, completed bool) {
		if c := h.commands[id]; c != nil {
			c.endedAt, c.failed = at, !completed
		}
	}
	for _, e := range events {
		at = e.EventId
		switch e.EventType {
		case enums.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
			h.steps = resumed(e)
		case enums.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
			cancelled = true
		case enums.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
			h.failed = true
		case enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
			h.first = cmp.Or(h.first, at)
			if !cancelled {
				h.last = at
			}
		case enums.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
			a := e.GetActivityTaskScheduledEventAttributes()
			h.commands[e.EventId] = &command{task: a.WorkflowTaskCompletedEventId, after: h.steps}
			records[e.EventId] = a.ActivityType.GetName() == "RecordStep"
		case enums.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
			id := e.GetActivityTaskCompletedEventAttributes().ScheduledEventId
			end(id, true)
			if records[id] {
				h.steps++
			}
		case enums.EVENT_TYPE_ACTIVITY_TASK_FAILED:
			end(e.GetActivityTaskFailedEventAttributes().ScheduledEventId, false)
		case enums.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
			end(e.GetActivityTaskTimedOutEventAttributes().ScheduledEventId, false)
		case enums.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
			end(e.GetActivityTaskCanceledEventAttributes().ScheduledEventId, false)
		case enums.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
			a := e.GetStartChildWorkflowExecutionInitiatedEventAttributes()
			h.commands[e.EventId] = &command{task: a.WorkflowTaskCompletedEventId, child: a.WorkflowId, after: h.steps}
		case enums.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_FAILED:
			end(e.GetStartChildWorkflowExecutionFailedEventAttributes().InitiatedEventId, false)
		case enums.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED:
			end(e.GetChildWorkflowExecutionCompletedEventAttributes().InitiatedEventId, true)
		case enums.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_FAILED:
			end(e.GetChildWorkflowExecutionFailedEventAttributes().InitiatedEventId, false)
		case enums.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_CANCELED:
			end(e.GetChildWorkflowExecutionCanceledEventAttributes().InitiatedEventId, false)
		case enums.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_TIMED_OUT:
			end(e.GetChildWorkflowExecutionTimedOutEventAttributes().InitiatedEventId, false)
		case enums.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_TERMINATED:
			end(e.GetChildWorkflowExecutionTerminatedEventAttributes().InitiatedEventId, false)
		}
	}
	return h
}

// resumed returns how many steps were finished before an execution that continues
// another.
func resumed(started *history.HistoryEvent) int {
	var in workflows.TrainingInput
	payloads := started.GetWorkflowExecutionStartedEventAttributes().GetInput()
	if converter.GetDefaultDataConverter().FromPayloads(payloads, &in) != nil || in.Resume == nil {
		return 0
	}
	return in.Resume.Step
}

// RetryWith continues a run that has ended after its last finished step, with other numbers
// for keys of the spec, among which may be the number of steps (spec.KeySteps). It returns
// the new execution and the first step that the numbers are for.
// A reset can't do that: it repeats the history with the numbers of before. So the state
// after the last finished step becomes the input of a new execution, as it does when a
// history has become long. What the unfinished steps have on record is not done again.
// Asking twice with one id gives the same execution.
func (r Retrier) RetryWith(ctx context.Context, run record.Run, id string, set workflows.SetInput) (execution string, step int, err error) {
	if err := r.whole(ctx, run.Name); err != nil {
		return "", 0, err
	}
	d, err := closed(ctx, r.Client, run)
	if err != nil {
		return "", 0, fmt.Errorf("ask Temporal about run %s: %w", run.Name, err)
	}
	if d == nil {
		return "", 0, fmt.Errorf("%w: its workflow is no longer in Temporal; start its spec under another name", ErrNotRetried)
	}
	info := d.WorkflowExecutionInfo
	completed := info.Status == enums.WORKFLOW_EXECUTION_STATUS_COMPLETED
	_, longer := set.Values[spec.KeySteps]
	_, asked := d.GetWorkflowExtendedInfo().GetRequestIdInfos()[id]
	switch {
	case asked: // this very request began it
	case underWay(info.Status):
		return "", 0, fmt.Errorf("%w: it is under way; `%s` changes what may change then", ErrNotRetried, shell.Command("set", run.Name, "KEY=NUMBER"))
	case completed && (!longer || searches(run)):
		return "", 0, errEnded(run)
	}
	state, err := r.state(ctx, run, info.Execution)
	if err != nil {
		return "", 0, err
	}
	if asked && len(state.Settings) > 0 {
		return info.Execution.RunId, state.Settings[len(state.Settings)-1].From, r.rebind(ctx, run, info.Execution.RunId)
	}
	if err := state.Set(set); err != nil {
		return "", 0, fmt.Errorf("%w: %w", ErrNotRetried, err)
	}
	input, err := converter.GetDefaultDataConverter().ToPayloads(workflows.TrainingInput{Resume: state})
	if err != nil {
		return "", 0, fmt.Errorf("encode the state of run %s: %w", run.Name, err)
	}
	reuse := enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE
	if !completed { // what its unfinished step quarantined was perhaps mended
		reuse = enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY
		if err := r.Store.ForgetQuarantines(ctx, run.Name); err != nil {
			return "", 0, err
		}
	}
	started, err := r.Client.WorkflowService().StartWorkflowExecution(ctx, &workflowservice.StartWorkflowExecutionRequest{
		Namespace: r.Namespace, WorkflowId: run.WorkflowID, WorkflowType: info.Type, TaskQueue: &taskqueue.TaskQueue{Name: workflows.QueueTraining},
		Input: input, Memo: info.Memo, RequestId: id, Identity: set.By,
		WorkflowIdReusePolicy:    reuse,
		WorkflowIdConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
	})
	var other *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &other) {
		return "", 0, fmt.Errorf("%w: somebody else made it go on meanwhile", ErrNotRetried)
	}
	if err != nil {
		return "", 0, fmt.Errorf("start run %s again: %w", run.Name, err)
	}
	return started.RunId, state.Step + 1, r.rebind(ctx, run, started.RunId)
}

// state asks a workflow for its state.
func (r Retrier) state(ctx context.Context, run record.Run, of *common.WorkflowExecution) (*workflows.TrainingState, error) {
	var state workflows.TrainingState
	value, err := r.Client.QueryWorkflow(ctx, of.WorkflowId, of.RunId, workflows.QueryState)
	if err == nil {
		err = value.Get(&state)
	}
	if err != nil {
		return nil, fmt.Errorf("ask run %s for its state: %w", run.Name, err)
	}
	return &state, nil
}

// rebind puts on record that a run goes on in another execution.
func (r Retrier) rebind(ctx context.Context, run record.Run, execution string) error {
	current, err := r.Store.Run(ctx, run.Name)
	if err == nil && current.ExecutionID != execution {
		if err = r.Store.RebindRun(ctx, current, execution); err == nil {
			current.ExecutionID = execution
			if current.Status != record.Running {
				err = r.Store.ReopenRun(ctx, current)
			}
		}
	}
	if errors.Is(err, record.ErrConflict) || errors.Is(err, record.ErrNotFound) {
		err = nil // it has ended again already, or was never on record
	}
	return err
}
