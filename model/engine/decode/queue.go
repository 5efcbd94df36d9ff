package decode

import (
	"slices"
	"sync"
)

// Queue holds the requests that wait for the owner of a batch, in the order of arrival. R
// is the engine's own kind of request.
type Queue[R any] struct {
	mu      sync.Mutex
	waiting []R
	closed  bool
	changed chan struct{} // holds a value if requests wait or closed was set
}

// NewQueue returns an empty queue.
func NewQueue[R any]() *Queue[R] { return &Queue[R]{changed: make(chan struct{}, 1)} }

// add appends r. It returns false if the queue is closed.
func (q *Queue[R]) add(r R) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.waiting = append(q.waiting, r)
	q.notify()
	return true
}

// Take moves up to room requests to the end of batch. closed reports whether the queue is
// closed; Take then moves all requests, so that the owner can end them.
func (q *Queue[R]) Take(batch []R, room int) (taken []R, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.waiting)
	if !q.closed {
		n = min(n, max(0, room))
	}
	batch = append(batch, q.waiting[:n]...)
	q.waiting = slices.Delete(q.waiting, 0, n)
	if len(q.waiting) > 0 {
		q.notify()
	}
	return batch, q.closed
}

// Return puts requests that were taken back in front of the others.
func (q *Queue[R]) Return(requests []R) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.Concat(requests, q.waiting)
	q.notify()
}

// Changed has a value while requests wait, and once the queue is closed. The owner waits
// there when it has nothing to do. It may find that nothing waits.
func (q *Queue[R]) Changed() <-chan struct{} { return q.changed }

// Close has every later request refused.
func (q *Queue[R]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.notify()
}

func (q *Queue[R]) notify() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}
