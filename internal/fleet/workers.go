package fleet

import (
	"context"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
)

// Workers asks Temporal about the workers of external agents, which are workflows or
// activities of other programs.
type Workers struct{ Client client.Client }

// Polled implements activities.Workers. Temporal remembers who polled for some
// minutes.
func (w Workers) Polled(ctx context.Context, queue string, workflows bool) (bool, error) {
	kind := enums.TASK_QUEUE_TYPE_ACTIVITY
	if workflows {
		kind = enums.TASK_QUEUE_TYPE_WORKFLOW
	}
	d, err := w.Client.DescribeTaskQueue(ctx, queue, kind)
	if err != nil {
		return false, fmt.Errorf("describe task queue %s: %w", queue, err)
	}
	return len(d.GetPollers()) > 0, nil
}

// Waits implements activities.Workers: it reports whether the workflow has a workflow
// task that no worker has taken.
func (w Workers) Waits(ctx context.Context, workflowID string) (bool, error) {
	waits := false
	for it := w.Client.GetWorkflowHistory(ctx, workflowID, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
		e, err := it.Next()
		if err != nil {
			return false, fmt.Errorf("read history of workflow %s: %w", workflowID, err)
		}
		switch e.GetEventType() {
		case enums.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED, enums.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
			waits = true // a task that timed out was taken up by a worker that then was lost
		case enums.EVENT_TYPE_WORKFLOW_TASK_STARTED:
			waits = false
		}
	}
	return waits, nil
}
