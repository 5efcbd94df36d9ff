package runstate

import (
	"context"
	"errors"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
)

// stuck reports whether an execution waits for ever for a child: one that had ended when
// a reset made this execution of a history in which the child is still under way.
// Temporal does not report that end again.
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
