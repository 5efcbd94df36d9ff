package devserver

import (
	"context"

	"go.temporal.io/api/workflowservice/v1"
)

// OpenWorkflowsOf returns the ids of the open workflows that a server's API describes.
func OpenWorkflowsOf(ctx context.Context, api workflowservice.WorkflowServiceClient) (ids []string, err error) {
	s := &Server{options: Options{}.withDefaults()}
	open, err := s.openWorkflows(ctx, api)
	for _, w := range open {
		ids = append(ids, w.GetWorkflowExecutionInfo().GetExecution().GetWorkflowId())
	}
	return ids, err
}
