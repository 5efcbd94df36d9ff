package devserver

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/failure/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/server/api/persistence/v1"
	"go.temporal.io/server/common/tasktoken"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// recoverIdentity is the identity of the recovery in histories.
const recoverIdentity = "fulgurite-recovery"

// died returns the failure of a task of a dead worker. Its delay makes the next try come
// at once, whatever the activity's own policy would have waited.
func died(identity string) *failure.Failure {
	return &failure.Failure{
		Message: fmt.Sprintf("worker %s ended before it was done", identity),
		FailureInfo: &failure.Failure_ApplicationFailureInfo{ApplicationFailureInfo: &failure.ApplicationFailureInfo{
			Type: "WorkerDied", NextRetryDelay: durationpb.New(time.Millisecond), // 0 means none is given
		}},
	}
}

// activity lets other workers take an activity that a dead one has. The token is of the
// try that was read: if another worker has begun a try meanwhile, that one goes on.
func (r *recovery) activity(ctx context.Context, w *common.WorkflowExecution, namespaceID string, a *persistence.ActivityInfo, now time.Time) error {
	switch {
	case a.GetPaused() || a.GetCancelRequested():
		return nil // whoever asked for it ends it, or its timeouts do
	case a.GetStartedEventId() == 0:
		waits := a.GetAttempt() > 1 && a.GetScheduledTime().AsTime().After(now)
		if !waits || !r.dead(a.GetRetryLastWorkerIdentity()) {
			return nil
		}
		r.delayed.Add(1)
		return r.reset(ctx, w, a)
	case !r.dead(a.GetStartedIdentity()):
		return nil
	}
	attempt := a.GetAttempt()
	switch a.GetRetryMaximumAttempts() {
	case 0:
	case 1:
		return nil // it is not tried again; its timeout tells the workflow what became of it
	default:
		// The allowed tries are for the activity's own failures, not for dead workers.
		if err := r.reset(ctx, w, a); err != nil {
			return err
		}
		attempt = 1
	}
	token, err := tasktoken.NewSerializer().Serialize(tasktoken.NewActivityTaskToken(namespaceID, w.WorkflowId, w.RunId,
		a.GetScheduledEventId(), a.GetActivityId(), a.GetActivityType().GetName(), attempt, nil, a.GetVersion(), a.GetStartVersion(), nil, a.GetStamp()))
	if err != nil {
		return fmt.Errorf("write task token: %w", err)
	}
	_, err = r.api.RespondActivityTaskFailed(ctx, &workflowservice.RespondActivityTaskFailedRequest{
		TaskToken: token, Namespace: r.namespace, Identity: recoverIdentity, Failure: died(a.GetStartedIdentity()),
	})
	if err == nil {
		r.activities.Add(1)
	}
	return ignoreGone(err)
}

// reset makes an activity start over with its first try, which comes at once if none is
// under way.
func (r *recovery) reset(ctx context.Context, w *common.WorkflowExecution, a *persistence.ActivityInfo) error {
	_, err := r.api.ResetActivity(ctx, &workflowservice.ResetActivityRequest{
		Namespace: r.namespace, Execution: w, Identity: recoverIdentity,
		Activity:   &workflowservice.ResetActivityRequest_Id{Id: a.GetActivityId()},
		KeepPaused: true,
	})
	return ignoreGone(err)
}

// failWorkflowTask fails the workflow task that was started, so that the next follows at
// once.
func (r *recovery) failWorkflowTask(ctx context.Context, w *common.WorkflowExecution, info *persistence.WorkflowExecutionInfo, identity string) error {
	token, err := tasktoken.NewSerializer().Serialize(tasktoken.NewWorkflowTaskToken(info.GetNamespaceId(), w.WorkflowId, w.RunId,
		info.GetWorkflowTaskScheduledEventId(), info.GetWorkflowTaskStartedEventId(), nil, info.GetWorkflowTaskAttempt(), nil, info.GetWorkflowTaskVersion()))
	if err != nil {
		return fmt.Errorf("write task token: %w", err)
	}
	return r.respond(ctx, token, identity)
}

func (r *recovery) respond(ctx context.Context, token []byte, identity string) error {
	_, err := r.api.RespondWorkflowTaskFailed(ctx, &workflowservice.RespondWorkflowTaskFailedRequest{
		TaskToken: token, Namespace: r.namespace, Identity: recoverIdentity,
		Cause: enums.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE, Failure: died(identity),
	})
	if err == nil {
		r.tasks.Add(1)
	}
	return ignoreGone(err)
}

// recentEvents is how many events of a history are read at once, from its end.
const recentEvents = 200

// lastWorker returns the identity of the worker that took the workflow's last workflow
// task, as far as the history shows it: tries of one task after the first leave no event.
func (r *recovery) lastWorker(ctx context.Context, w *common.WorkflowExecution) (string, error) {
	var page []byte
	for {
		h, err := r.api.GetWorkflowExecutionHistoryReverse(ctx, &workflowservice.GetWorkflowExecutionHistoryReverseRequest{
			Namespace: r.namespace, Execution: w, MaximumPageSize: recentEvents, NextPageToken: page,
		})
		if err != nil {
			return "", err
		}
		for _, e := range h.GetHistory().GetEvents() {
			if started := e.GetWorkflowTaskStartedEventAttributes(); started != nil {
				return started.GetIdentity(), nil
			}
		}
		if page = h.GetNextPageToken(); len(page) == 0 {
			return "", nil
		}
	}
}

// ignoreGone drops the error that says that a task or a workflow does not exist any more.
func ignoreGone(err error) error {
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}
