package runstate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/converter"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/workflows"
)

// RetryPhases lets a PhasesWorkflow go on that failed or was ended: it starts the run of the
// phase that it was in, if it is not on record, and waits for it. It returns the new execution.
// retry lets that run go on first, if it has ended, and returns an error if it can't. The error
// is record.ErrNotFound if Temporal has no PhasesWorkflow of that name.
func (r Retrier) RetryPhases(ctx context.Context, name, reason string, retry func(run string) error) (execution string, err error) {
	d, err := r.Client.DescribeWorkflowExecution(ctx, name, "")
	var unknown *serviceerror.NotFound
	switch {
	case errors.As(err, &unknown) || err == nil && d.WorkflowExecutionInfo.GetType().GetName() != workflows.TypePhases:
		return "", fmt.Errorf("run %s: %w", name, record.ErrNotFound)
	case err != nil:
		return "", fmt.Errorf("ask Temporal about phases %s: %w", name, err)
	case underWay(d.WorkflowExecutionInfo.Status):
		return "", fmt.Errorf("%w: its phases are under way", ErrNotRetried)
	case d.WorkflowExecutionInfo.Status == enums.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		return "", fmt.Errorf("%w: all phases have completed", ErrNotRetried)
	}
	events, err := historyOf(ctx, r.Client, d)
	if err != nil {
		return "", fmt.Errorf("read the history of phases %s: %w", name, err)
	}
	run, at := lastPhase(events)
	if at == 0 {
		return "", fmt.Errorf("%w: none of its phases had begun; start it again under the same name, with a spec that is mended if it was refused", ErrNotRetried)
	}
	recorded, err := r.Store.Run(ctx, run)
	switch {
	case errors.Is(err, record.ErrNotFound):
	case err != nil:
		return "", err
	case recorded.Status == record.Running, recorded.Status == record.Completed, recorded.Status == record.Stopped, recorded.Status == record.Refused:
	default:
		if err := retry(run); err != nil {
			return "", err
		}
	}
	return rewind(ctx, r.Client, r.Namespace, d, at, reason)
}

// lastPhase returns the run that a PhasesWorkflow with this history started last, and the
// workflow task that asked for it. The task is 0 if it has started none.
func lastPhase(events []*history.HistoryEvent) (run string, task int64) {
	for _, e := range slices.Backward(events) {
		a := e.GetActivityTaskScheduledEventAttributes()
		var in activities.StartPhaseInput
		if a.GetActivityType().GetName() == "StartPhase" && converter.GetDefaultDataConverter().FromPayloads(a.GetInput(), &in) == nil {
			return in.Phase.Run, a.GetWorkflowTaskCompletedEventId()
		}
	}
	return "", 0
}
