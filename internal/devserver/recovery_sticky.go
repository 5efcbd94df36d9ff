package devserver

import (
	"context"
	stdsync "sync"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
)

// stickyQueues are the sticky queues of dead workers, in which workflow tasks may lie.
type stickyQueues struct {
	mu     stdsync.Mutex
	queues map[string]*stickyQueue
}

type stickyQueue struct {
	normal   string // the queue that all workers of the workflow poll
	identity string // of the dead worker
	tasks    int    // most tasks that may lie in it
}

func (s *stickyQueues) add(own, normal, identity string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues == nil {
		s.queues = map[string]*stickyQueue{}
	}
	if s.queues[own] == nil {
		s.queues[own] = &stickyQueue{normal: normal, identity: identity}
	}
	s.queues[own].tasks++
}

// drainTimeout is how long workflow tasks can lie in the queue of a worker before
// Temporal itself moves them: a little more than the SDK's default.
const drainTimeout = 6 * time.Second

// drain polls workflow tasks from the sticky queues of dead workers and fails them, so
// that the next try goes to the workflow's normal queue. There is no other way: a task
// that lies in such a queue is not moved when the workflow is untied from it. Whether
// a task lies there shows only when a poll returns it, so drain goes on in the background
// for drainTimeout, or until Stop.
func (s *Server) drain(r *recovery, conn *grpc.ClientConn) {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	var all stdsync.WaitGroup
	for name, q := range r.sticky.queues {
		all.Go(func() { r.drainQueue(ctx, name, q) })
	}
	done := make(chan struct{})
	s.stopDraining = func() {
		cancel()
		<-done
	}
	go func() {
		defer close(done)
		defer cancel()
		all.Wait()
		_ = conn.Close() // nothing is left to be read from it
	}()
}

// drainQueue ends with the last task that can lie in the queue, or with ctx.
func (r *recovery) drainQueue(ctx context.Context, name string, q *stickyQueue) {
	for q.tasks > 0 {
		task, err := r.api.PollWorkflowTaskQueue(ctx, &workflowservice.PollWorkflowTaskQueueRequest{
			Namespace: r.namespace, Identity: recoverIdentity,
			TaskQueue: &taskqueue.TaskQueue{Name: name, NormalName: q.normal, Kind: enums.TASK_QUEUE_KIND_STICKY},
		})
		if err != nil {
			return // the tasks that are left time out
		}
		if len(task.GetTaskToken()) == 0 {
			continue
		}
		if err := r.respond(ctx, task.GetTaskToken(), q.identity); err != nil {
			return
		}
		q.tasks--
	}
}
