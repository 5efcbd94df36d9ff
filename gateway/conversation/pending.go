package conversation

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/trace"
)

// pendingCall is a call that is being sampled and recorded. One request waits for it, or
// several equal ones.
type pendingCall struct {
	request    *Request
	name       string // of the one choice that the call is for
	form       canonicalRequest
	occurrence int
	seed       uint64
	maxTokens  int
	source     *trace.Exchange // the call of an earlier attempt to replay; nil to sample
	history    history

	// The parts of the reply, other than the prompt, that are known in advance.
	stem    string
	created time.Time

	feed      feed
	waiters   int  // requests that wait for it; at 0, it is abandoned unless it is closed
	closed    bool // its client closed the stream that it had begun to read
	committed bool // the journal has it
	cancel    context.CancelFunc

	// The fields below are set before done is closed.
	done chan struct{}
	call *Call
	err  error
}

// leave removes one of the requests that p will answer. If the client has closed a stream
// that it had begun to read, p is sampled to its end: the agent has used a part of it. It
// reports false if p has completed already. The conversation's mu is held.
func (p *pendingCall) leave(closed bool) bool {
	select {
	case <-p.done:
		return false
	default:
	}
	p.closed = p.closed || closed
	if p.waiters--; p.waiters == 0 && !p.closed {
		p.cancel()
	}
	return true
}

// closedCall returns a pending call whose client has closed its stream and for which no
// request waits, or nil. It locks mu.
func (c *Conversation) closedCall() *pendingCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, all := range c.pending {
		for _, p := range all {
			if p.closed && p.waiters == 0 {
				return p
			}
		}
	}
	return nil
}

// complete ends a pending call; the requests that wait for it then write its reply.
func (c *Conversation) complete(p *pendingCall, call *Call, err error) {
	key := p.form.key
	if c.pending[key] = slices.DeleteFunc(c.pending[key], func(other *pendingCall) bool { return other == p }); len(c.pending[key]) == 0 {
		delete(c.pending, key)
	}
	c.inFlight--
	if call != nil {
		call.writers += p.waiters
		call.delivered = call.delivered || p.closed
	}
	if err != nil && !errors.Is(err, ErrAgain) {
		c.repeatsOf(key).failed = true
	}
	p.call, p.err = call, err
	close(p.done)
}

// find returns the recorded call that answers a request, or the pending call that the
// request has to wait for. It returns neither if the request asks for another sample. It
// leaves out the calls in slots, which other choices of the request already have.
//
// In this order, find looks for the recorded call of the request's name, if it has one; a
// recorded call that was never delivered; the pending call of the request's name; and a
// pending call that no request waits for, unless its client closed the stream. If the
// client says that it asks again, any pending call will do, and otherwise the last
// recorded one. With pendingOnly, find leaves out all recorded calls.
func (c *Conversation) find(key, name string, again, pendingOnly bool, slots []Slot) (*Call, *pendingCall) {
	repeats := c.repeatsOf(key)
	calls, pending := repeats.calls, c.pending[key]
	if len(slots) > 0 {
		calls = slices.DeleteFunc(slices.Clone(calls), func(call *Call) bool { return has(slots, call, nil) })
		pending = slices.DeleteFunc(slices.Clone(pending), func(p *pendingCall) bool { return has(slots, nil, p) })
	}
	if !pendingOnly {
		if call := undeliveredCall(calls, name); call != nil {
			return call, nil
		}
	}
	if p := joinableCall(pending, name, again); p != nil {
		return nil, p
	}
	if n := len(calls); !pendingOnly && again && n > 0 && !repeats.failed {
		return calls[n-1], nil
	}
	return nil, nil
}

// undeliveredCall returns the recorded call of the request's name, or else a recorded call
// that was not delivered. It returns nil if there is neither.
func undeliveredCall(calls []*Call, name string) *Call {
	for _, c := range calls {
		if name != "" && c.RequestName == name {
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

// joinableCall returns the pending call for which the request has to wait. This may be an
// abandoned one: it may yet be recorded, and its occurrence is reserved until then.
func joinableCall(pending []*pendingCall, name string, again bool) *pendingCall {
	for _, p := range pending {
		if name != "" && p.name == name {
			return p
		}
	}
	for _, p := range pending {
		if again || p.waiters == 0 && !p.closed {
			return p
		}
	}
	return nil
}

// reserve begins a pending call, or refuses it by the attempt's limits.
func (c *Conversation) reserve(r *Request, form canonicalRequest, name string) (*pendingCall, error) {
	terms := c.begun.Terms
	if terms.MaxCalls > 0 && len(c.calls)+c.inFlight >= terms.MaxCalls {
		return nil, &LimitError{Calls: terms.MaxCalls}
	}
	p := &pendingCall{request: r, name: name, form: form, maxTokens: c.replyLimit(r.Request), waiters: 1, done: make(chan struct{})}
	if terms.TokenBudget > 0 {
		left := terms.TokenBudget - c.tokens
		if left <= 0 {
			return nil, &LimitError{Tokens: terms.TokenBudget}
		}
		p.maxTokens = min(p.maxTokens, left)
	}
	p.occurrence = c.freeOccurrence(form.key)
	p.seed = seedOf(terms.RunSeed, c.address.RolloutID, form.key, p.occurrence)
	p.stem = stemOf(p.seed)
	if p.source = c.earlier.find(form.key, p.occurrence); p.source != nil {
		p.history.prompt, p.created = p.source.Prompt, createdOf(p.source)
	} else {
		var err error
		if p.history, err = c.historyOf(r, form); err != nil {
			return nil, err
		}
		// The time is not the clock's, so a lost call that is sampled again has the same
		// reply.
		p.created = c.begun.Begun
	}
	c.repeatsOf(form.key).failed = false
	c.pending[form.key] = append(c.pending[form.key], p)
	c.inFlight++
	return p, nil
}

// freeOccurrence returns the lowest occurrence that is neither recorded nor in flight.
func (c *Conversation) freeOccurrence(key string) int {
	n, recorded, pending := 0, c.repeatsOf(key), c.pending[key]
	for recorded.at(n) != nil || slices.ContainsFunc(pending, func(p *pendingCall) bool { return p.occurrence == n }) {
		n++
	}
	return n
}
