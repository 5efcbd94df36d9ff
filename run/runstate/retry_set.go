package runstate

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/workflows"
)

// RetryWith continues a run that has ended after its last finished step, with other numbers
// for keys of the spec, among which may be the number of steps (spec.KeySteps). It returns
// the new execution and the first step that the numbers are for.
// A reset can't do that: it repeats the history with the numbers of before. So the state
// after the last finished step becomes the input of a new execution, as it does when a
// history has become long. What the unfinished steps have on record is not done again.
// Asking twice with one id gives the same execution.
func (r Retrier) RetryWith(ctx context.Context, run record.Run, id string, set workflows.SetInput) (execution string, step int, err error) {
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
	case completed && !longer:
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
	if errors.Is(err, trace.ErrConflict) || errors.Is(err, trace.ErrNotFound) {
		err = nil // it has ended again already, or was never on record
	}
	return err
}
