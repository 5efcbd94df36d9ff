package inflight

import (
	"slices"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/trace"
)

// Attempt is an attempt with its calls in flight. The lock of its conversation guards
// these as well.
type Attempt struct {
	*conversation.Attempt
	pending map[string][]*pendingCall // by the key of the request
	count   int                       // the number of pending calls, of all keys
}

// NewAttempt returns an attempt that has not read the journal yet.
func (m *Maker) NewAttempt(address trace.Address) *Attempt {
	return &Attempt{Attempt: conversation.New(&m.config.Config, address), pending: map[string][]*pendingCall{}}
}

// find returns the recorded call that answers a request, or the pending call that the
// request has to wait for. It returns neither if the request asks for another sample. It
// leaves out the calls in slots, which other choices of the request already have.
//
// In this order, find looks for the recorded call of the exchange, if it has a name; a
// recorded call that was never delivered; the pending call of the exchange; and a pending
// call that no request waits for, unless its client closed the stream. If the client says
// that it asks again, any pending call will do, and otherwise the last recorded one. With
// inFlight, find leaves out all recorded calls. The caller holds the lock.
func (a *Attempt) find(key, exchange string, again, inFlight bool, slots []Slot) (*conversation.Call, *pendingCall) {
	repeats := a.Repeats(key)
	calls, pending := repeats.Calls, a.pending[key]
	if len(slots) > 0 {
		calls = slices.DeleteFunc(slices.Clone(calls), func(c *conversation.Call) bool { return has(slots, c, nil) })
		pending = slices.DeleteFunc(slices.Clone(pending), func(p *pendingCall) bool { return has(slots, nil, p) })
	}
	if !inFlight {
		if c := undelivered(calls, exchange); c != nil {
			return c, nil
		}
	}
	if p := joinable(pending, exchange, again); p != nil {
		return nil, p
	}
	if n := len(calls); !inFlight && again && n > 0 && !repeats.Failed {
		return calls[n-1], nil
	}
	return nil, nil
}

// undelivered returns the recorded call of the exchange, or else a recorded call that was
// not delivered. It returns nil if there is neither.
func undelivered(calls []*conversation.Call, exchange string) *conversation.Call {
	for _, c := range calls {
		if exchange != "" && c.Call.Exchange == exchange {
			return c
		}
	}
	for _, c := range calls {
		if !c.Delivered && c.Writers == 0 {
			return c
		}
	}
	return nil
}

// joinable returns the pending call for which the request has to wait. This may be an
// abandoned one: it may yet be recorded, and its occurrence is reserved until then.
func joinable(pending []*pendingCall, exchange string, again bool) *pendingCall {
	for _, p := range pending {
		if exchange != "" && p.exchange == exchange {
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

// reserve begins a pending call, or refuses it by the attempt's limits. The caller holds
// the lock.
func (a *Attempt) reserve(r *conversation.Request, form conversation.Canonical, exchange string) (*pendingCall, error) {
	begun := a.Begun()
	terms := begun.Terms
	calls, tokens := a.Recorded()
	if terms.MaxCalls > 0 && calls+a.count >= terms.MaxCalls {
		return nil, &conversation.LimitError{Calls: terms.MaxCalls}
	}
	p := &pendingCall{request: r, exchange: exchange, form: form, maxTokens: a.ReplyLimit(r.Request), waiters: 1, done: make(chan struct{})}
	if terms.TokenBudget > 0 {
		left := terms.TokenBudget - tokens
		if left <= 0 {
			return nil, &conversation.LimitError{Tokens: terms.TokenBudget}
		}
		p.maxTokens = min(p.maxTokens, left)
	}
	p.occurrence = a.freeOccurrence(form.Key)
	p.seed = conversation.SeedOf(terms.RunSeed, a.Address().RolloutID, form.Key, p.occurrence)
	p.stem = conversation.Stem(p.seed)
	if p.source = a.Earlier(form.Key, p.occurrence); p.source != nil {
		p.history.Prompt, p.created = p.source.Prompt, conversation.CreatedOf(p.source)
	} else {
		var err error
		if p.history, err = a.History(r, form); err != nil {
			return nil, err
		}
		// The time is not the clock's, so a lost call that is sampled again has the same
		// reply.
		p.created = begun.Begun
	}
	a.Repeats(form.Key).Failed = false
	a.pending[form.Key] = append(a.pending[form.Key], p)
	a.count++
	return p, nil
}

// freeOccurrence returns the lowest occurrence that is neither recorded nor in flight.
func (a *Attempt) freeOccurrence(key string) int {
	n, recorded, pending := 0, a.Repeats(key), a.pending[key]
	for recorded.At(n) != nil || slices.ContainsFunc(pending, func(p *pendingCall) bool { return p.occurrence == n }) {
		n++
	}
	return n
}
