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

// abandoned are the queues of dead workers in which workflow tasks may lie, with the
// queue of the workflows and how many tasks they are at most.
type abandoned struct {
	mu     stdsync.Mutex
	queues map[string]*abandonedQueue
}

type abandonedQueue struct {
	normal, identity string
	tasks            int
}

func (a *abandoned) add(own, normal, identity string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.queues == nil {
		a.queues = map[string]*abandonedQueue{}
	}
	if a.queues[own] == nil {
		a.queues[own] = &abandonedQueue{normal: normal, identity: identity}
	}
	a.queues[own].tasks++
}

// drainTimeout is how long workflow tasks can lie in the queue of a worker before
// Temporal itself moves them: the SDK's default, and some.
const drainTimeout = 6 * time.Second

// drain takes workflow tasks out of the queues of dead workers and fails them, so
// that the next try goes to the workflow's normal queue. There is no other way: a
// task that lies in such a queue is not moved when the workflow is untied from it.
// It goes on in the background until Stop, since whether a task lies there shows only
// when it comes.
func (s *Server) drain(r *recovery, conn *grpc.ClientConn) {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	var all stdsync.WaitGroup
	for name, q := range r.abandoned.queues {
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
func (r *recovery) drainQueue(ctx context.Context, name string, q *abandonedQueue) {
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
