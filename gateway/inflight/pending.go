package inflight

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/trace"
)

// pendingCall is a call that is being sampled and recorded. One request waits for it, or
// several equal ones.
type pendingCall struct {
	request    *conversation.Request
	exchange   string // of the one choice that the call is for
	form       conversation.Canonical
	occurrence int
	seed       uint64
	maxTokens  int
	source     *trace.Exchange // the call of an earlier attempt to replay; nil to sample
	history    conversation.History

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
	call *conversation.Call
	err  error
}

// leave removes one of the requests that p will answer. If the client has closed a stream
// that it had begun to read, p is sampled to its end: the agent has used a part of it. It
// reports false if p has completed already. The caller holds the lock.
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
// request waits, or nil.
func (a *Attempt) closedCall() *pendingCall {
	a.Lock()
	defer a.Unlock()
	for _, all := range a.pending {
		for _, p := range all {
			if p.closed && p.waiters == 0 {
				return p
			}
		}
	}
	return nil
}

// complete ends a pending call; the requests that wait for it then write its reply. The
// caller holds the lock.
func (a *Attempt) complete(p *pendingCall, c *conversation.Call, err error) {
	key := p.form.Key
	if a.pending[key] = slices.DeleteFunc(a.pending[key], func(other *pendingCall) bool { return other == p }); len(a.pending[key]) == 0 {
		delete(a.pending, key)
	}
	a.count--
	if c != nil {
		c.Writers += p.waiters
		c.Delivered = c.Delivered || p.closed
	}
	if err != nil && !errors.Is(err, ErrAgain) {
		a.Repeats(key).Failed = true
	}
	p.call, p.err = c, err
	close(p.done)
}
