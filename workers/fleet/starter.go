package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/update"
	"github.com/fulgurite/fulgurite/workflows"
)

// Starter starts the workflows of runs, as a user's command does.
type Starter struct {
	Client client.Client
}

// StartRun implements activities.Starter.
func (s Starter) StartRun(ctx context.Context, name, workflow string, sp spec.Spec) error {
	text, err := json.Marshal(sp)
	if err != nil {
		return fmt.Errorf("encode the spec of run %s: %w", name, err)
	}
	_, err = s.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: name, TaskQueue: workflows.QueueTraining, StaticSummary: "run " + name,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		Memo:                     map[string]any{"spec_digest": spec.Digest(sp)},
	}, workflow, workflows.TrainingInput{Spec: text})
	if err != nil {
		return fmt.Errorf("start run %s: %w", name, err)
	}
	return nil
}

// UnderWay implements activities.Starter.
func (s Starter) UnderWay(ctx context.Context, name string) (bool, error) {
	d, err := s.Client.DescribeWorkflowExecution(ctx, name, "")
	var unknown *serviceerror.NotFound
	if errors.As(err, &unknown) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("describe workflow %s: %w", name, err)
	}
	status := d.WorkflowExecutionInfo.Status
	return status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING || status == enums.WORKFLOW_EXECUTION_STATUS_PAUSED, nil
}

// CancelRun implements activities.Starter.
func (s Starter) CancelRun(ctx context.Context, name string) error {
	err := s.Client.CancelWorkflow(ctx, name, "")
	var unknown *serviceerror.NotFound
	if err != nil && !errors.As(err, &unknown) {
		return fmt.Errorf("cancel run %s: %w", name, err)
	}
	return nil
}

// endedUpdates returns the types of Temporal's errors for an Update whose execution ended before
// the Update did. After a reset the next execution has the Update too, so who asks again with
// its id gets its result.
func endedUpdates() []string { return []string{"AcceptedUpdateCompletedWorkflow", "UnprocessedUpdate"} }

// RequestSegment implements activities.Segments.
func (s Starter) RequestSegment(ctx context.Context, run, id string) (out activities.RequestSegmentResult, err error) {
	handle, err := s.Client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		UpdateID: id, WorkflowID: run, UpdateName: workflows.UpdateSegment, Args: []any{workflows.SegmentInput{}},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	var r workflows.UpdateResult
	if err == nil {
		err = handle.Get(ctx, &r)
	}
	var refused *temporal.ApplicationError
	var unknown *serviceerror.NotFound
	switch {
	case err == nil:
		return activities.RequestSegmentResult{Step: r.Step, Message: r.Message}, nil
	case errors.As(err, &refused) && refused.Type() == workflows.ErrTypeSegment:
		return out, update.Final(fmt.Errorf("run %s has failed: %s", run, refused.Message()))
	case errors.As(err, &refused) && slices.Contains(endedUpdates(), refused.Type()):
		return out, fmt.Errorf("ask run %s for a segment: it was reset or has ended meanwhile: %w", run, err)
	case errors.As(err, &refused): // its validator refused it
		return activities.RequestSegmentResult{Message: "no step: " + refused.Message()}, nil
	case errors.As(err, &unknown):
		return out, fmt.Errorf("run %s: %w", run, record.ErrFenced)
	}
	return out, fmt.Errorf("ask run %s for a segment: %w", run, err)
}
