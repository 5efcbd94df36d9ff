package devserver

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/failure/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Recovery counts what Recover has begun again.
type Recovery struct {
	// Workflows counts the workflows that were looked at: all that have not ended.
	Workflows int
	// Activities counts those that had been started by a worker that is dead.
	Activities int
	// Delayed counts the activities that waited for their next try.
	Delayed int
	// Untied counts the workflows whose tasks went to the sticky queue of such a worker.
	Untied int
}

const (
	// recoverTimeout bounds Recover. What Recover does not reach only takes longer:
	// Temporal's own timeouts find it.
	recoverTimeout = 20 * time.Second
	// recoverAtOnce is how many workflows are recovered at the same time: SQLite
	// writes one after another.
	recoverAtOnce = 8
	// recoverMessage is the largest reply: the state of a workflow with thousands
	// of pending activities.
	recoverMessage = 64 << 20
	// recoverIdentity is the identity of the recovery in histories.
	recoverIdentity = "fulgurite-recovery"
	// recentEvents is how many events of a history are read at once, from its end.
	recentEvents = 200
)

// Recover begins again what dead workers had begun. dead reports whether the worker of an
// identity is dead. Temporal can't know that they died and would wait for heartbeat and
// task timeouts. Activities are failed, without a delay before their next try. Activities
// that waited for their next try after such a worker get it now. Workflows are no longer
// tied to the sticky queue of such a worker. What other workers do is left alone, and so
// is what a person paused.
//
// It uses Temporal's public API alone, in which a workflow task belongs to the worker that
// took it. So a workflow task that a dead worker had taken waits for its timeout (10 s
// unless the workflow says otherwise), and one in the sticky queue of a dead worker for
// the timeout of that queue (5 s by the SDK's default). Both are rare, because a workflow
// task takes milliseconds.
//
// Call it once after Start on a directory, before workers of the caller poll.
func (s *Server) Recover(ctx context.Context, dead func(identity string) bool) (Recovery, error) {
	if s.options.Dir == "" {
		return Recovery{}, nil // nothing survives in memory; PostgreSQL has workers of others
	}
	ctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	api, end, err := s.workflowService()
	if err != nil {
		return Recovery{}, err
	}
	defer end()
	open, err := s.openWorkflows(ctx, api)
	if err != nil {
		return Recovery{}, err
	}
	r := &recovery{namespace: s.options.Namespace, dead: dead, api: api}
	g, limited := errgroup.WithContext(ctx)
	g.SetLimit(recoverAtOnce)
	for _, w := range open {
		g.Go(func() error { return r.workflow(limited, w) })
	}
	err = g.Wait()
	return Recovery{len(open), int(r.activities.Load()), int(r.delayed.Load()), int(r.untied.Load())}, err
}

// workflowService connects to the server for replies of any size.
func (s *Server) workflowService() (_ workflowservice.WorkflowServiceClient, end func(), _ error) {
	conn, err := grpc.NewClient(s.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(recoverMessage)))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to temporal server %s: %w", s.Address(), err)
	}
	return workflowservice.NewWorkflowServiceClient(conn), func() { _ = conn.Close() }, nil
}

// OpenWorkflows lists the workflows that have not ended.
func (s *Server) OpenWorkflows(ctx context.Context) ([]*common.WorkflowExecution, error) {
	api, end, err := s.workflowService()
	if err != nil {
		return nil, err
	}
	defer end()
	open, err := s.openWorkflows(ctx, api)
	var all []*common.WorkflowExecution
	for _, w := range open {
		all = append(all, w.GetWorkflowExecutionInfo().GetExecution())
	}
	return all, err
}

// openWorkflows describes the workflows that have not ended: those that visibility lists,
// and their children, however deep. Visibility follows the workflows themselves by some
// moments, so it may lack a child that was started just before the server died.
func (s *Server) openWorkflows(ctx context.Context, api workflowservice.WorkflowServiceClient) ([]*workflowservice.DescribeWorkflowExecutionResponse, error) {
	var next []*common.WorkflowExecution
	for page := []byte(nil); ; {
		list, err := api.ListWorkflowExecutions(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: s.options.Namespace, Query: "ExecutionStatus = 'Running'", NextPageToken: page,
		})
		if err != nil {
			return nil, fmt.Errorf("list open workflows: %w", err)
		}
		for _, w := range list.GetExecutions() {
			next = append(next, w.GetExecution())
		}
		if page = list.GetNextPageToken(); len(page) == 0 {
			break
		}
	}
	var open []*workflowservice.DescribeWorkflowExecutionResponse
	seen := map[string]bool{} // by run id
	for len(next) > 0 {
		described := make([]*workflowservice.DescribeWorkflowExecutionResponse, len(next))
		g, limited := errgroup.WithContext(ctx)
		g.SetLimit(recoverAtOnce)
		for i, w := range next {
			if seen[w.GetRunId()] {
				continue
			}
			seen[w.GetRunId()] = true
			g.Go(func() (err error) {
				described[i], err = api.DescribeWorkflowExecution(limited, &workflowservice.DescribeWorkflowExecutionRequest{Namespace: s.options.Namespace, Execution: w})
				if err = ignoreGone(err); err != nil {
					return fmt.Errorf("describe workflow %s: %w", w.GetWorkflowId(), err)
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return nil, err
		}
		next = nil
		for _, d := range described {
			if d.GetWorkflowExecutionInfo().GetStatus() != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
				continue // it has been seen, or ended meanwhile
			}
			open = append(open, d)
			for _, child := range d.GetPendingChildren() {
				next = append(next, &common.WorkflowExecution{WorkflowId: child.GetWorkflowId(), RunId: child.GetRunId()})
			}
		}
	}
	return open, nil
}

// recovery is the work of one Recover.
type recovery struct {
	namespace string
	dead      func(identity string) bool
	api       workflowservice.WorkflowServiceClient

	activities, delayed, untied atomic.Int64
}

// workflow recovers one workflow. One that ended meanwhile needs nothing.
func (r *recovery) workflow(ctx context.Context, d *workflowservice.DescribeWorkflowExecutionResponse) error {
	w := d.GetWorkflowExecutionInfo().GetExecution()
	if err := r.untie(ctx, w); err != nil {
		return fmt.Errorf("recover workflow %s: %w", w.GetWorkflowId(), err)
	}
	now := time.Now()
	for _, a := range d.GetPendingActivities() {
		if err := r.activity(ctx, w, a, now); err != nil {
			return fmt.Errorf("recover activity %s of workflow %s: %w", a.GetActivityType().GetName(), w.GetWorkflowId(), err)
		}
	}
	return nil
}

// untie makes the next tasks of a workflow go to the queue that all workers poll, if a dead
// worker took the last one.
func (r *recovery) untie(ctx context.Context, w *common.WorkflowExecution) error {
	identity, err := r.lastWorker(ctx, w)
	if err != nil || !r.dead(identity) {
		return ignoreGone(err)
	}
	if _, err = r.api.ResetStickyTaskQueue(ctx, &workflowservice.ResetStickyTaskQueueRequest{Namespace: r.namespace, Execution: w}); err == nil {
		r.untied.Add(1)
	}
	return ignoreGone(err)
}

// lastWorker returns the identity of the worker that took the workflow's last workflow
// task, as far as the history shows it: tries of one task after the first leave no event.
func (r *recovery) lastWorker(ctx context.Context, w *common.WorkflowExecution) (string, error) {
	for page := []byte(nil); ; {
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

// activity lets other workers take an activity that a dead one has.
func (r *recovery) activity(ctx context.Context, w *common.WorkflowExecution, a *workflow.PendingActivityInfo, now time.Time) error {
	identity := a.GetLastWorkerIdentity()
	if !r.dead(identity) {
		return nil
	}
	switch a.GetState() {
	case enums.PENDING_ACTIVITY_STATE_SCHEDULED:
		if a.GetPaused() || a.GetAttempt() == 1 || !a.GetNextAttemptScheduleTime().AsTime().After(now) {
			return nil
		}
		r.delayed.Add(1)
		return r.reset(ctx, w, a)
	case enums.PENDING_ACTIVITY_STATE_STARTED:
	default:
		return nil // whoever paused or cancelled it ends it, or its timeouts do
	}
	switch a.GetMaximumAttempts() {
	case 0:
	case 1:
		return nil // it is not tried again; its timeout tells the workflow what became of it
	default:
		// The allowed tries are for the activity's own failures, not for dead workers.
		if err := r.reset(ctx, w, a); err != nil {
			return err
		}
	}
	_, err := r.api.RespondActivityTaskFailedById(ctx, &workflowservice.RespondActivityTaskFailedByIdRequest{
		Namespace: r.namespace, WorkflowId: w.GetWorkflowId(), RunId: w.GetRunId(), ActivityId: a.GetActivityId(), Identity: recoverIdentity,
		// The delay makes the next try come at once, whatever the activity's own policy would have waited.
		Failure: &failure.Failure{
			Message: fmt.Sprintf("worker %s ended before it was done", identity),
			FailureInfo: &failure.Failure_ApplicationFailureInfo{ApplicationFailureInfo: &failure.ApplicationFailureInfo{
				Type: "WorkerDied", NextRetryDelay: durationpb.New(time.Millisecond), // 0 means none is given
			}},
		},
	})
	if err == nil {
		r.activities.Add(1)
	}
	return ignoreGone(err)
}

// reset makes an activity start over with its first try, which comes at once if none is
// under way.
func (r *recovery) reset(ctx context.Context, w *common.WorkflowExecution, a *workflow.PendingActivityInfo) error {
	_, err := r.api.ResetActivity(ctx, &workflowservice.ResetActivityRequest{
		Namespace: r.namespace, Execution: w, Identity: recoverIdentity,
		Activity:   &workflowservice.ResetActivityRequest_Id{Id: a.GetActivityId()},
		KeepPaused: true,
	})
	return ignoreGone(err)
}

// ignoreGone drops the error that says that a task or a workflow does not exist any more.
func ignoreGone(err error) error {
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}
