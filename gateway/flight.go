package gateway

import (
	"context"
	"errors"
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
	exchange   string
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

// standing returns the call with which the request is answered, or the flight
// that it has to wait for; neither, if it is a request for another sample.
//
// A named exchange has its own call. Without a call of that name, the request
// means one that was never delivered; then, if the client says that it asks
// again, one in flight or else the last. inFlight leaves out what is recorded.
func (r *repeats) standing(q *question, inFlight bool) (*call, *flight) {
	if !inFlight {
		if c := r.unanswered(q.exchange); c != nil {
			return c, nil
		}
	}
	if f := r.pending(q); f != nil {
		return nil, f
	}
	if n := len(r.calls); !inFlight && q.again && n > 0 && !r.failed {
		return r.calls[n-1], nil
	}
	return nil, nil
}

// unanswered returns the call of an exchange that still asks, or one that nobody
// has.
func (r *repeats) unanswered(exchange string) *call {
	for _, c := range r.calls {
		if exchange != "" && c.exchange == exchange {
			return c
		}
	}
	for _, c := range r.calls {
		if !c.delivered && c.writers == 0 {
			return c
		}
	}
	return nil
}

// pending returns the flight that the request has to wait for. An abandoned one
// is waited for as well: it may yet be recorded, and its occurrence is taken
// until then.
func (r *repeats) pending(q *question) *flight {
	for _, f := range r.flights {
		if q.exchange != "" && f.exchange == q.exchange {
			return f
		}
	}
	for _, f := range r.flights {
		if q.again || f.waiters == 0 {
			return f
		}
	}
	return nil
}

// free is the lowest occurrence that is neither recorded nor in flight.
func (r *repeats) free() int {
	n := 0
	for r.at(n) != nil || slices.ContainsFunc(r.flights, func(f *flight) bool { return f.occurrence == n }) {
		n++
	}
	return n
}

// begin reserves a free occurrence.
func (r *repeats) begin(occurrence int, exchange string) *flight {
	f := &flight{occurrence: occurrence, exchange: exchange, waiters: 1, done: make(chan struct{})}
	r.flights = append(r.flights, f)
	r.failed = false
	return f
}

// at is the recorded call of an occurrence, or nil.
func (r *repeats) at(occurrence int) *call {
	for _, c := range r.calls {
		if c.occurrence == occurrence {
			return c
		}
	}
	return nil
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

// join waits for f. An abandoned flight answers nobody: then the error is
// errAgain. The caller holds mu, which join releases.
func (a *attempt) join(ctx context.Context, f *flight) (*call, error) {
	counted := f.waiters > 0
	if counted {
		f.waiters++
	}
	a.mu.Unlock()
	select {
	case <-f.done:
		if !counted {
			return nil, errAgain
		}
		return f.call, f.err
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if counted && !f.leave() && f.call != nil {
		f.call.writers--
	}
	return nil, fmt.Errorf("wait for call in flight: %w", ctx.Err())
}

// land ends a flight; the requests that wait for it now write its reply. The
// caller holds mu.
func (a *attempt) land(key string, f *flight, c *call, err error) {
	r := a.repeatsOf(key)
	r.flights = slices.DeleteFunc(r.flights, func(other *flight) bool { return other == f })
	if c != nil {
		c.writers += f.waiters
	}
	if err != nil && !errors.Is(err, errAgain) {
		r.failed = true
	}
	a.flying--
	f.call, f.err, f.landed = c, err, true
	close(f.done)
}
