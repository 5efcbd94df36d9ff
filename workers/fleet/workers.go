package fleet

import (
	"context"
	"fmt"
	"strings"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/internal/truncate"
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

// Stuck implements activities.Workers. Temporal makes a workflow task again without limit
// if it fails, and its history has the failure of the first try.
func (w Workers) Stuck(ctx context.Context, workflowID string) (string, error) {
	stuck := ""
	for it := w.Client.GetWorkflowHistory(ctx, workflowID, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
		e, err := it.Next()
		if err != nil {
			return "", fmt.Errorf("read history of workflow %s: %w", workflowID, err)
		}
		switch e.GetEventType() {
		case enums.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED, enums.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
			if !strings.HasPrefix(stuck, codeFails) { // else it is the next try of the task that failed
				stuck = "at the end it waited for a worker" // a task that timed out was taken up by a worker that then was lost
			}
		case enums.EVENT_TYPE_WORKFLOW_TASK_FAILED:
			stuck = taskFailure(e.GetWorkflowTaskFailedEventAttributes())
		case enums.EVENT_TYPE_WORKFLOW_TASK_STARTED:
			if !strings.HasPrefix(stuck, codeFails) {
				stuck = ""
			}
		case enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
			stuck = ""
		}
	}
	return stuck, nil
}

const (
	codeFails = "the code of its workflow fails on "
	// failureBytes bounds the failure of a workflow's code.
	failureBytes = 2 << 10
)

// taskFailure says why a worker could not go on with a workflow.
func taskFailure(a *history.WorkflowTaskFailedEventAttributes) string {
	text := a.GetFailure().GetMessage()
	if kind := a.GetFailure().GetApplicationFailureInfo().GetType(); kind != "" {
		text = kind + ": " + text
	}
	if text == "" {
		text = a.GetCause().String()
	}
	return truncate.Ellipsis(fmt.Sprintf("%sits worker %s: %s; start a worker with other code, and attempts go on", codeFails, a.GetIdentity(), strings.ToValidUTF8(text, "\uFFFD")), failureBytes)
}
