package gateway

import (
	"context"
	"fmt"
	"slices"
)

// repeats is all that an attempt did for one and the same request.
type repeats struct {
	calls   []*call // in the order they were recorded
	flights []*flight
	// failed says that the last of them came to nothing, so that whoever repeats
	// it does not mean the call before.
	failed bool
}

// flight is a call that is being sampled and recorded.
type flight struct {
	occurrence int
	waiters    int  // requests to be answered; none left: abandoned
	orphaned   bool // the request that began it is not among them
	landed     bool
	cancel     context.CancelFunc
	done       chan struct{} // closed when landed
	call       *call
	err        error
}

func (a *attempt) repeatsOf(key string) *repeats {
	r, ok := a.repeats[key]
	if !ok {
		r = &repeats{}
		a.repeats[key] = r
	}
	return r
}

// recorded returns the call with which a repetition of the request is answered,
// or nil if it is a request for another sample. A client that says it asks again
// means the last call; one that does not means it if that was never delivered.
func (r *repeats) recorded(again bool) *call {
	if len(r.calls) == 0 {
		return nil
	}
	last := r.calls[len(r.calls)-1]
	if lost := !last.delivered && last.writers == 0; lost || again && !r.failed {
		return last
	}
	return nil
}

// pending returns the flight that the request has to wait for. An abandoned one
// is waited for as well: it may yet be recorded, and its occurrence is taken
// until then.
func (r *repeats) pending(again bool) *flight {
	for _, f := range r.flights {
		if again || f.waiters == 0 {
			return f
		}
	}
	return nil
}

// begin reserves the lowest occurrence that is neither recorded nor in flight.
func (r *repeats) begin() *flight {
	f := &flight{waiters: 1, done: make(chan struct{})}
	for r.taken(f.occurrence) {
		f.occurrence++
	}
	r.flights = append(r.flights, f)
	r.failed = false
	return f
}

func (r *repeats) taken(occurrence int) bool {
	return slices.ContainsFunc(r.calls, func(c *call) bool { return c.occurrence == occurrence }) ||
		slices.ContainsFunc(r.flights, func(f *flight) bool { return f.occurrence == occurrence })
}

// leave takes one request out of those that f will answer. It reports false if
// f has landed with it. The caller holds mu.
func (f *flight) leave() bool {
	if f.landed {
		return false
	}
	if f.waiters--; f.waiters == 0 {
		f.cancel()
	}
	return true
}

// watch lets f go on without the request that began it when ctx ends; stop ends
// the watch.
func (a *attempt) watch(ctx context.Context, f *flight) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if f.leave() {
			f.orphaned = true
		}
	})
}

// join waits for f and reports whether that answered the request: an abandoned
// flight answers nobody. The caller holds mu, which join releases.
func (a *attempt) join(ctx context.Context, f *flight) (c *call, answered bool, err error) {
	counted := f.waiters > 0
	if counted {
		f.waiters++
	}
	a.mu.Unlock()
	select {
	case <-f.done:
		return f.call, counted, f.err
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if counted && !f.leave() && f.call != nil {
		f.call.writers--
	}
	return nil, true, fmt.Errorf("wait for call in flight: %w", ctx.Err())
}

// land ends a flight; the requests that wait for it now write its reply. The
// caller holds mu.
func (a *attempt) land(key string, f *flight, c *call, err error) {
	r := a.repeatsOf(key)
	r.flights = slices.DeleteFunc(r.flights, func(other *flight) bool { return other == f })
	if c != nil {
		c.writers = f.waiters
	}
	if err != nil {
		r.failed = true
	}
	a.flying--
	f.call, f.err, f.landed = c, err, true
	close(f.done)
}
