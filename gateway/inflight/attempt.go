package inflight

import (
	"slices"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/trace"
)

// Attempt is an attempt with its calls in flight, which the lock of its conversation
// guards as well.
type Attempt struct {
	*conversation.Attempt
	pending map[string][]*pendingCall // by the key of their requests
	count   int                       // of them all
}

// NewAttempt returns an attempt of which nothing was read yet.
func (m *Maker) NewAttempt(address trace.Address) *Attempt {
	return &Attempt{Attempt: conversation.New(&m.config.Config, address), pending: map[string][]*pendingCall{}}
}

// find returns the call with which a request is answered, or the pending call that it
// has to wait for; neither, if it is a request for another sample. Other choices of it
// are answered by what the slots have.
//
// A named exchange has its own call. Without a call of that name, the request means
// one that was never delivered; then, if the client says that it asks again, one in
// flight or else the last. inFlight leaves out what is recorded. The caller holds the
// lock.
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

// undelivered returns the call of an exchange that still asks, or one that nobody has.
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

// joinable returns the pending call that the request has to wait for. An abandoned one
// is waited for as well: it may yet be recorded, and its occurrence is reserved until
// then.
func joinable(pending []*pendingCall, exchange string, again bool) *pendingCall {
	for _, p := range pending {
		if exchange != "" && p.exchange == exchange {
			return p
		}
	}
	for _, p := range pending {
		if again || p.waiters == 0 {
			return p
		}
	}
	return nil
}

// reserve begins a pending call, or refuses it for the attempt's limits. The caller
// holds the lock.
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
		// No clock: a call that is sampled again because it was lost is the same.
		p.created = begun.Begun
	}
	a.Repeats(form.Key).Failed = false
	a.pending[form.Key] = append(a.pending[form.Key], p)
	a.count++
	return p, nil
}

// freeOccurrence is the lowest one that is neither recorded nor in flight.
func (a *Attempt) freeOccurrence(key string) int {
	n, recorded, pending := 0, a.Repeats(key), a.pending[key]
	for recorded.At(n) != nil || slices.ContainsFunc(pending, func(p *pendingCall) bool { return p.occurrence == n }) {
		n++
	}
	return n
}
