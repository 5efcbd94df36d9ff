package runstate

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// Mender lets runs go on after one of the two databases, the record and Temporal's, came
// from an earlier time than the other, or was lost. Whatever a run does twice comes from
// the record, or is equal. Nobody may work on the runs meanwhile.
type Mender struct {
	Client    client.Client
	Namespace string
	Store     interface {
		Store
		RebindRun(ctx context.Context, r record.Run, execution string) error
		AllForgotten(ctx context.Context) ([]record.Forgotten, error)
	}
}

// Mended says what Mend did.
type Mended struct {
	Rewound   []string // ids of workflows
	Restarted []string // names of runs
	Ended     []string // names of runs that have ended by the record and were under way in Temporal
	Removed   []string // names of forgotten runs that Temporal still had histories of
}

// Mend does what Rewind and Restart do, where nobody can tell whether the record or Temporal is
// from an earlier time. Rewinding a workflow whose results are all on record costs only the time
// to read them. It finds open workflows by Temporal's lists and by the runs on record. Before, it
// removes the histories of runs that were forgotten, and terminates the workflows of runs that
// have ended by the record: a Temporal from an earlier time has them.
func (m Mender) Mend(ctx context.Context) (out Mended, err error) {
	gone, err := m.removeForgotten(ctx, &out)
	if err != nil {
		return out, err
	}
	runs, err := m.describeRuns(ctx)
	if err != nil {
		return out, err
	}
	if err := m.terminate(ctx, runs, gone, &out); err != nil {
		return out, err
	}
	open, err := m.open(ctx, runs, gone)
	if err == nil {
		out.Rewound, err = m.rewind(ctx, open, runs)
	}
	if err == nil {
		out.Restarted, err = m.restart(ctx, runs)
	}
	return out, err
}

// removeForgotten deletes the histories of forgotten runs, and ends those that are under way. It
// returns the ids of their workflows. Temporal's lists lag behind, or are from another moment, so
// the workflow of a run is also deleted if they do not have it.
func (m Mender) removeForgotten(ctx context.Context, out *Mended) (gone map[string]bool, err error) {
	stones, err := m.Store.AllForgotten(ctx)
	if err != nil {
		return nil, err
	}
	gone = map[string]bool{}
	for _, one := range stones {
		if one.What != record.ForgottenRun {
			continue
		}
		gone[one.Run] = true // a run has the name of its workflow
		known, err := m.deleteLatest(ctx, one.Run)
		if err != nil {
			return nil, fmt.Errorf("remove the history of run %s, which was forgotten: %w", one.Run, err)
		}
		listed, err := Histories{Client: m.Client, Namespace: m.Namespace}.Delete(ctx, record.Run{Name: one.Run, WorkflowID: one.Run}, func(string) bool { return true })
		if err != nil {
			return nil, fmt.Errorf("remove the histories of run %s, which was forgotten: %w", one.Run, err)
		}
		if known || listed > 0 {
			out.Removed = append(out.Removed, one.Run)
		}
	}
	return gone, nil
}

// deleteLatest deletes the last execution of a workflow, and reports whether Temporal has one.
func (m Mender) deleteLatest(ctx context.Context, id string) (known bool, err error) {
	_, err = m.Client.WorkflowService().DeleteWorkflowExecution(ctx, &workflowservice.DeleteWorkflowExecutionRequest{
		Namespace: m.Namespace, WorkflowExecution: &common.WorkflowExecution{WorkflowId: id},
	})
	var unknown *serviceerror.NotFound
	if errors.As(err, &unknown) {
		return false, nil
	}
	return err == nil, err
}

// terminate ends the workflows that are under way although their runs have ended by the record,
// and adds them to those that are gone. A run that was reset after its end is under way again.
func (m Mender) terminate(ctx context.Context, runs []describedRun, gone map[string]bool, out *Mended) error {
	for _, run := range runs {
		if run.Status == record.Running || gone[run.WorkflowID] || run.workflow == nil || !underWay(run.workflow.WorkflowExecutionInfo.Status) || resetSince(run.workflow, run.Run) {
			continue
		}
		w := run.workflow.WorkflowExecutionInfo.Execution
		err := m.Client.TerminateWorkflow(ctx, w.WorkflowId, w.RunId, "its run has ended by the record: it is "+string(run.Status))
		var unknown *serviceerror.NotFound
		if err != nil && !errors.As(err, &unknown) {
			return fmt.Errorf("terminate workflow %s, whose run has ended by the record: %w", w.WorkflowId, err)
		}
		if err := (Reconciler{Client: m.Client}).endChildren(ctx, run.Run); err != nil {
			return err
		}
		gone[w.WorkflowId] = true
		out.Ended = append(out.Ended, run.Name)
	}
	return nil
}

// openOfTraining finds the workflows on the queue of runs that have not ended.
const openOfTraining = "TaskQueue = '" + workflows.QueueTraining + "' AND ExecutionStatus = 'Running'"

// describedRun is a run, and its workflow as Temporal describes it, nil if Temporal does not know
// it.
type describedRun struct {
	record.Run
	workflow *workflowservice.DescribeWorkflowExecutionResponse
}

func (m Mender) describeRuns(ctx context.Context) ([]describedRun, error) {
	runs, err := m.Store.Runs(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]describedRun, len(runs))
	for i, run := range runs {
		d, err := latest(ctx, m.Client, run)
		if err != nil {
			return nil, fmt.Errorf("ask Temporal about run %s: %w", run.Name, err)
		}
		out[i] = describedRun{run, d}
	}
	return out, nil
}

// open returns the executions on the queue of runs that have not ended, each once, without those
// of workflows that are gone.
func (m Mender) open(ctx context.Context, runs []describedRun, gone map[string]bool) (out []*common.WorkflowExecution, err error) {
	known := map[string]bool{}
	add := func(e *common.WorkflowExecution) {
		if !known[e.RunId] && !gone[e.WorkflowId] {
			known[e.RunId] = true
			out = append(out, e)
		}
	}
	request := &workflowservice.ListWorkflowExecutionsRequest{PageSize: 1000, Query: openOfTraining}
	for {
		page, err := m.Client.ListWorkflow(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("list open workflows: %w", err)
		}
		for _, e := range page.Executions {
			add(e.Execution)
		}
		if request.NextPageToken = page.NextPageToken; len(page.NextPageToken) == 0 {
			break
		}
	}
	for _, run := range runs {
		if run.workflow != nil && underWay(run.workflow.WorkflowExecutionInfo.Status) {
			add(run.workflow.WorkflowExecutionInfo.Execution)
		}
	}
	return out, nil
}

// Rewind resets workflows to their beginning, because the record lacks results that their
// histories have: each of the open ones that is not another's child, and those that have
// completed although the record says that their runs are under way. It returns their ids.
func (m Mender) Rewind(ctx context.Context, open []*common.WorkflowExecution) (rewound []string, err error) {
	runs, err := m.describeRuns(ctx)
	if err != nil {
		return nil, err
	}
	return m.rewind(ctx, open, runs)
}

func (m Mender) rewind(ctx context.Context, open []*common.WorkflowExecution, runs []describedRun) (rewound []string, err error) {
	for _, run := range runs {
		if run.Status == record.Running && run.workflow != nil && run.workflow.WorkflowExecutionInfo.Status == enums.WORKFLOW_EXECUTION_STATUS_COMPLETED {
			open = append(open, run.workflow.WorkflowExecutionInfo.Execution)
		}
	}
	for _, w := range open {
		done, err := m.rewindOne(ctx, w)
		var gone *serviceerror.NotFound
		if errors.As(err, &gone) { // it was deleted, or is being deleted
			continue
		}
		if err != nil {
			return rewound, err
		}
		if done {
			rewound = append(rewound, w.WorkflowId)
		}
	}
	return rewound, nil
}

// rewindOne resets a workflow to its beginning and reports true, or leaves another's child and a
// workflow that has not begun alone.
func (m Mender) rewindOne(ctx context.Context, w *common.WorkflowExecution) (bool, error) {
	d, err := m.Client.DescribeWorkflowExecution(ctx, w.WorkflowId, w.RunId)
	if err != nil {
		return false, fmt.Errorf("describe workflow %s: %w", w.WorkflowId, err)
	}
	if d.WorkflowExecutionInfo.ParentExecution != nil || d.WorkflowExecutionInfo.TaskQueue != workflows.QueueTraining {
		return false, nil
	}
	events, err := historyOf(ctx, m.Client, d)
	if err != nil {
		return false, fmt.Errorf("read the history of workflow %s: %w", w.WorkflowId, err)
	}
	for _, e := range events {
		if e.EventType == enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			_, err := rewind(ctx, m.Client, m.Namespace, d, e.EventId, "the record is from an earlier time than this history")
			return err == nil, err
		}
	}
	return false, nil
}

// Restart starts again the workflow of each run that is under way by the record and that
// Temporal does not know. It returns the names of the runs.
func (m Mender) Restart(ctx context.Context) (restarted []string, err error) {
	runs, err := m.describeRuns(ctx)
	if err != nil {
		return nil, err
	}
	return m.restart(ctx, runs)
}

func (m Mender) restart(ctx context.Context, runs []describedRun) (restarted []string, err error) {
	for _, run := range runs {
		if run.Status != record.Running || run.workflow != nil {
			continue
		}
		sp, err := spec.Stored(run.Spec)
		if err != nil {
			return restarted, fmt.Errorf("read the spec of run %s: %w", run.Name, err)
		}
		w, err := m.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
			ID: run.WorkflowID, TaskQueue: workflows.QueueTraining, Memo: map[string]any{"spec_digest": run.SpecDigest},
		}, workflows.TypeOf(sp), workflows.TrainingInput{Spec: run.Spec})
		if err == nil {
			err = m.Store.RebindRun(ctx, run.Run, w.GetRunID())
		}
		if err != nil {
			return restarted, fmt.Errorf("start run %s again: %w", run.Name, err)
		}
		restarted = append(restarted, run.Name)
	}
	return restarted, nil
}
