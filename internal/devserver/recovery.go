package devserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/server/api/adminservice/v1"
	"go.temporal.io/server/api/persistence/v1"
	"go.temporal.io/server/common/primitives"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Recovery counts what Recover has begun again.
type Recovery struct {
	// Workflows counts the workflows that were looked at: all that have not ended.
	Workflows int
	// Activities counts those that had been started by a worker that is dead.
	Activities int
	// Delayed counts the activities that waited for their next try.
	Delayed int
	// WorkflowTasks counts those that had been started by a worker that is dead. Tasks in
	// a queue that only such a worker polled follow in the background and are not
	// counted.
	WorkflowTasks int
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
)

// Recover begins again what dead workers had begun. dead reports whether the worker of an
// identity is dead. Temporal can't know that they died and would wait for heartbeat and
// task timeouts. Activities are failed, without a delay before their next try. Activities
// that waited for their next try after such a worker get it now. Workflow tasks are
// failed, and workflows are no longer tied to the sticky queue of such a worker. What
// other workers do is left alone, and so is what a person paused.
//
// Call it once after Start on a directory, before workers of the caller poll.
func (s *Server) Recover(ctx context.Context, dead func(identity string) bool) (_ Recovery, err error) {
	if s.options.Dir == "" {
		return Recovery{}, nil // nothing survives in memory; PostgreSQL has workers of others
	}
	ctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	open, err := s.openWorkflows(ctx)
	if err != nil || len(open) == 0 {
		return Recovery{}, err
	}
	conn, err := grpc.NewClient(s.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(recoverMessage)))
	if err != nil {
		return Recovery{}, fmt.Errorf("connect to temporal server %s: %w", s.Address(), err)
	}
	r := &recovery{
		namespace: s.options.Namespace, dead: dead,
		api: workflowservice.NewWorkflowServiceClient(conn), admin: adminservice.NewAdminServiceClient(conn),
	}
	g, limited := errgroup.WithContext(ctx)
	g.SetLimit(recoverAtOnce)
	for _, w := range open {
		g.Go(func() error { return r.workflow(limited, w) })
	}
	err = g.Wait()
	s.drain(r, conn)
	return Recovery{len(open), int(r.activities.Load()), int(r.delayed.Load()), int(r.tasks.Load())}, err
}

const databaseFile = "temporal.db"

// uriPath writes a path for SQLite's file URIs, in which ?, # and % mean
// something.
func uriPath(path string) string {
	return (&url.URL{Path: path}).EscapedPath()
}

// OpenWorkflows lists the workflows of a directory's server that have not ended.
func (s *Server) OpenWorkflows(ctx context.Context) ([]*common.WorkflowExecution, error) {
	return s.openWorkflows(ctx)
}

// openWorkflows lists the workflows that have not ended. It reads the database, because
// visibility lacks what the dead process had not yet written to it.
func (s *Server) openWorkflows(ctx context.Context) (_ []*common.WorkflowExecution, err error) {
	db, err := sql.Open("sqlite", "file:"+uriPath(filepath.Join(s.options.Dir, databaseFile))+"?"+url.Values{
		"mode": {"ro"}, "_pragma": {"busy_timeout(10000)"},
	}.Encode())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rows, err := db.QueryContext(ctx, `SELECT c.workflow_id, c.run_id FROM current_executions c JOIN namespaces n ON n.id = c.namespace_id
		WHERE n.name = ? AND c.status = 1 ORDER BY c.workflow_id`, s.options.Namespace)
	if err != nil {
		return nil, fmt.Errorf("list open workflows: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var out []*common.WorkflowExecution
	for rows.Next() {
		w := &common.WorkflowExecution{}
		var run []byte
		if err := rows.Scan(&w.WorkflowId, &run); err != nil {
			return nil, fmt.Errorf("list open workflows: %w", err)
		}
		w.RunId = primitives.UUIDString(run)
		out = append(out, w)
	}
	return out, rows.Err()
}

// recovery is the work of one Recover.
type recovery struct {
	namespace string
	dead      func(identity string) bool
	api       workflowservice.WorkflowServiceClient
	admin     adminservice.AdminServiceClient

	activities, delayed, tasks atomic.Int64
	sticky                     stickyQueues
}

// workflow recovers one workflow. One that ended meanwhile needs nothing.
func (r *recovery) workflow(ctx context.Context, w *common.WorkflowExecution) error {
	d, err := r.admin.DescribeMutableState(ctx, &adminservice.DescribeMutableStateRequest{Namespace: r.namespace, Execution: w})
	if err != nil {
		return ignoreGone(err)
	}
	state := d.GetCacheMutableState()
	if state == nil {
		state = d.GetDatabaseMutableState()
	}
	if err := r.workflowTask(ctx, w, state.GetExecutionInfo()); err != nil {
		return fmt.Errorf("recover workflow %s: %w", w.WorkflowId, err)
	}
	now := time.Now()
	for _, a := range state.GetActivityInfos() {
		if err := r.activity(ctx, w, state.GetExecutionInfo().GetNamespaceId(), a, now); err != nil {
			return fmt.Errorf("recover activity %s of workflow %s: %w", a.GetActivityType().GetName(), w.WorkflowId, err)
		}
	}
	return nil
}

// workflowTask lets other workers take a workflow task that a dead one has.
func (r *recovery) workflowTask(ctx context.Context, w *common.WorkflowExecution, info *persistence.WorkflowExecutionInfo) error {
	own := info.GetStickyTaskQueue()
	pending := info.GetWorkflowTaskScheduledEventId() > 0
	started := pending && info.GetWorkflowTaskStartedEventId() > 0
	if own == "" && !started {
		return nil
	}
	identity, err := r.lastWorker(ctx, w)
	if err != nil {
		return ignoreGone(err)
	}
	// A process that recovered and was killed itself is dead too.
	if identity != recoverIdentity && !r.dead(identity) {
		return nil
	}
	switch {
	case started:
		return r.failWorkflowTask(ctx, w, info, identity)
	case pending:
		r.sticky.add(own, info.GetTaskQueue(), identity)
		return nil
	}
	_, err = r.api.ResetStickyTaskQueue(ctx, &workflowservice.ResetStickyTaskQueueRequest{Namespace: r.namespace, Execution: w})
	return ignoreGone(err)
}
