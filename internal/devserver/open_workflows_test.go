package devserver_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fulgurite/fulgurite/internal/devserver"
)

// laggingVisibility is an API whose lists lack workflows and still have some that are gone
// or have ended. A real server is behind for too short a time to be caught at it.
type laggingVisibility struct {
	workflowservice.WorkflowServiceClient
	listed   [][]string // by page
	children map[string][]string
	ended    string
}

func (v laggingVisibility) ListWorkflowExecutions(_ context.Context, r *workflowservice.ListWorkflowExecutionsRequest, _ ...grpc.CallOption) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	page := len(r.NextPageToken) // a byte for each page that was read
	out := &workflowservice.ListWorkflowExecutionsResponse{}
	for _, id := range v.listed[page] {
		out.Executions = append(out.Executions, &workflow.WorkflowExecutionInfo{Execution: &common.WorkflowExecution{WorkflowId: id, RunId: id}})
	}
	if page+1 < len(v.listed) {
		out.NextPageToken = make([]byte, page+1)
	}
	return out, nil
}

func (v laggingVisibility) DescribeWorkflowExecution(_ context.Context, r *workflowservice.DescribeWorkflowExecutionRequest, _ ...grpc.CallOption) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	children, known := v.children[r.Execution.WorkflowId]
	if !known {
		return nil, status.Error(codes.NotFound, "no such workflow")
	}
	out := &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflow.WorkflowExecutionInfo{Execution: r.Execution, Status: enums.WORKFLOW_EXECUTION_STATUS_RUNNING},
	}
	if r.Execution.WorkflowId == v.ended {
		out.WorkflowExecutionInfo.Status = enums.WORKFLOW_EXECUTION_STATUS_COMPLETED
	}
	for _, id := range children {
		out.PendingChildren = append(out.PendingChildren, &workflow.PendingChildExecutionInfo{WorkflowId: id, RunId: id})
	}
	return out, nil
}

func TestOpenWorkflowsAreFoundThoughVisibilityLags(t *testing.T) {
	t.Parallel()
	open, err := devserver.OpenWorkflowsOf(t.Context(), laggingVisibility{
		listed:   [][]string{{"run", "ended"}, {"gone", "child"}},
		children: map[string][]string{"run": {"child", "new child"}, "child": nil, "new child": {"grandchild"}, "grandchild": nil, "ended": nil},
		ended:    "ended",
	})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"run", "child", "new child", "grandchild"}, open)
}
