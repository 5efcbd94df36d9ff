package gateway

import (
	"context"
	"errors"
	"slices"
	"time"
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
	// What of the reply is known before there is any.
	stem    string
	created time.Time
	prompt  []int32

	feed    feed
	waiters int // requests to be answered; none left: abandoned
	landed  bool
	cancel  context.CancelFunc
	done    chan struct{} // closed when landed
	call    *call
	err     error
}

func (a *attempt) repeatsOf(key string) *repeats {
	r, ok := a.repeats[key]
	if !ok {
		r = &repeats{}
		a.repeats[key] = r
	}
	return r
}

// standing returns the call with which a request is answered, or the flight that
// it has to wait for; neither, if it is a request for another sample. Taken are
// those that answer other choices of it.
//
// A named exchange has its own call. Without a call of that name, the request
// means one that was never delivered; then, if the client says that it asks
// again, one in flight or else the last. inFlight leaves out what is recorded.
func (r *repeats) standing(exchange string, again, inFlight bool, taken []seat) (*call, *flight) {
	calls, flights := r.calls, r.flights
	if len(taken) > 0 {
		calls = slices.DeleteFunc(slices.Clone(calls), func(c *call) bool { return holds(taken, c, nil) })
		flights = slices.DeleteFunc(slices.Clone(flights), func(f *flight) bool { return holds(taken, nil, f) })
	}
	if !inFlight {
		if c := unanswered(calls, exchange); c != nil {
			return c, nil
		}
	}
	if f := pending(flights, exchange, again); f != nil {
		return nil, f
	}
	if n := len(calls); !inFlight && again && n > 0 && !r.failed {
		return calls[n-1], nil
	}
	return nil, nil
}

// unanswered returns the call of an exchange that still asks, or one that nobody
// has.
func unanswered(calls []*call, exchange string) *call {
	for _, c := range calls {
		if exchange != "" && c.exchange == exchange {
			return c
		}
	}
	for _, c := range calls {
		if !c.delivered && c.writers == 0 {
			return c
		}
	}
	return nil
}

// pending returns the flight that the request has to wait for. An abandoned one
// is waited for as well: it may yet be recorded, and its occurrence is taken
// until then.
func pending(flights []*flight, exchange string, again bool) *flight {
	for _, f := range flights {
		if exchange != "" && f.exchange == exchange {
			return f
		}
	}
	for _, f := range flights {
		if again || f.waiters == 0 {
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
func (r *repeats) begin(f *flight) {
	f.waiters, f.done = 1, make(chan struct{})
	r.flights = append(r.flights, f)
	r.failed = false
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
