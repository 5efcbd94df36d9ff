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
	waiters   int  // requests that wait for it; at 0, it is abandoned
	committed bool // the journal has it
	cancel    context.CancelFunc

	// The fields below are set before done is closed.
	done chan struct{}
	call *conversation.Call
	err  error
}

// leave removes one of the requests that p will answer. It reports false if p has
// completed already. The caller holds the lock.
func (p *pendingCall) leave() bool {
	select {
	case <-p.done:
		return false
	default:
	}
	if p.waiters--; p.waiters == 0 {
		p.cancel()
	}
	return true
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
	}
	if err != nil && !errors.Is(err, ErrAgain) {
		a.Repeats(key).Failed = true
	}
	p.call, p.err = c, err
	close(p.done)
}
