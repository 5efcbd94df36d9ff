package inflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/wire"
)

// ErrAgain sends a request back to Admit: the call that it waited for was given up, or
// would be sampled after other tokens than those on record.
var ErrAgain = errors.New("the attempt has changed")

// Calls gives a request its calls. A request can be admitted again once its slots are
// released.
type Calls interface {
	// Admit returns one slot for each choice.
	Admit(ctx context.Context) ([]Slot, error)
	// Release gives slots back, and says what the client got of the reply. It waits for
	// everything that the request began.
	Release(slots []Slot, got Delivery)
}

// Delivery is what a client got of a reply.
type Delivery int

// What a client can get.
const (
	Nothing Delivery = iota
	Part             // the beginning of a stream
	Whole
)

// Slot is where one choice of a request waits for its call.
type Slot struct {
	call           *conversation.Call // the slot's call, once there is one
	pending        *pendingCall       // the call that the slot waits for; nil if the call was on record
	answersRequest bool               // the pending call answers this request
	first          bool               // this request reserved the pending call
	wait           func()             // returns when what this request began has ended
	// joined counts the calls that other requests began.
	joined *atomic.Int64
}

// has reports whether the call or the pending call is in one of the slots.
func has(slots []Slot, c *conversation.Call, p *pendingCall) bool {
	return slices.ContainsFunc(slots, func(s Slot) bool { return c != nil && s.call == c || p != nil && s.pending == p })
}

// Head returns the parts of the reply that are known in advance.
func (s *Slot) Head(r *conversation.Request) wire.Reply {
	if s.pending == nil {
		return r.Head(s.call.Stem, s.call.Created, s.call.Prompt)
	}
	return r.Head(s.pending.stem, s.pending.created, s.pending.history.Prompt)
}

// Call returns the call of the slot; nil if Wait has not returned one yet.
func (s *Slot) Call() *conversation.Call { return s.call }

// Done returns a channel that is closed once Wait need not wait any more.
func (s *Slot) Done() <-chan struct{} { return s.pending.done }

// Since returns the tokens sampled after the first n, and a channel that is closed when
// there are more. It returns nothing if the call does not answer this request.
func (s *Slot) Since(n int) (tokens []int32, logprobs []float32, more <-chan struct{}) {
	if !s.answersRequest {
		return nil, nil, nil
	}
	return s.pending.feed.since(n)
}

// Wait waits for the call. If the call was abandoned, the error is ErrAgain.
func (s *Slot) Wait(ctx context.Context) (*conversation.Call, error) {
	if s.call != nil {
		return s.call, nil
	}
	select {
	case <-s.pending.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for call: %w", ctx.Err())
	}
	switch {
	case !s.answersRequest:
		return nil, ErrAgain
	case s.pending.err != nil:
		return nil, s.pending.err
	}
	s.call = s.pending.call
	if s.joined != nil {
		s.joined.Add(1)
	}
	return s.call, nil
}

// attemptCalls are the calls for one request of an attempt.
type attemptCalls struct {
	*Maker
	attempt *Attempt
	request *conversation.Request
	reread  bool // the journal was read again for the request
}

// ForAttempt returns the calls of an attempt for a request.
func (m *Maker) ForAttempt(a *Attempt, r *conversation.Request) Calls {
	return &attemptCalls{Maker: m, attempt: a, request: r}
}

func (h *attemptCalls) Admit(ctx context.Context) ([]Slot, error) {
	for {
		if err := h.awaitClosed(ctx); err != nil {
			return nil, err
		}
		slots, err := h.admitOnce(ctx)
		if !errors.Is(err, ErrAgain) {
			return slots, err
		}
	}
}

// awaitClosed waits until every call whose client closed the stream is on record: this
// request may continue its dialog, and has what it left of the attempt's tokens. So it
// does not matter when the client closed the stream. A client that asks again may want
// the very call.
func (h *attemptCalls) awaitClosed(ctx context.Context) error {
	for !h.request.Again {
		p := h.attempt.closedCall()
		if p == nil {
			return nil
		}
		select {
		case <-p.done:
		case <-ctx.Done():
			return fmt.Errorf("wait for the call before: %w", ctx.Err())
		}
	}
	return nil
}

func (h *attemptCalls) admitOnce(ctx context.Context) ([]Slot, error) {
	a, r := h.attempt, h.request
	a.Lock()
	defer a.Unlock()
	if err := a.Ready(ctx); err != nil {
		return nil, err
	}
	if err := a.Resume(r); err != nil {
		return nil, err
	}
	form := a.Canonicalize(r)
	slots := make([]Slot, r.N)
	for i := range slots {
		c, p := a.find(form.Key, r.ExchangeOf(i), r.Again, h.config.NoReplay, slots[:i])
		if c == nil && p == nil && (r.Again || r.Reasked) && !h.reread && !h.config.NoReplay {
			// Another gateway may have answered it since this one read the journal.
			h.reread = true
			a.Reload()
			return nil, ErrAgain
		}
		slots[i].call, slots[i].pending = c, p
	}
	for i := range slots {
		if err := h.claim(&slots[i], form, r.ExchangeOf(i)); err != nil {
			h.release(slots[:i], Nothing)
			return nil, err
		}
	}
	// Equal requests get their choices in the same order, that of the occurrences.
	slices.SortStableFunc(slots, func(s, t Slot) int { return cmp.Compare(s.occurrence(), t.occurrence()) })
	for i := range slots {
		if s := &slots[i]; s.first {
			s.wait = h.start(ctx, a, s.pending)
		}
	}
	return slots, nil
}

func (s *Slot) occurrence() int {
	if s.pending == nil {
		return s.call.Occurrence
	}
	return s.pending.occurrence
}

// claim counts the request among those that the slot's call answers, and reserves a call
// if there is none. The caller holds the lock.
func (h *attemptCalls) claim(s *Slot, form conversation.Canonical, exchange string) error {
	switch {
	case s.call != nil:
		s.call.Writers++
		if exchange != "" {
			s.call.Call.Exchange = exchange
		}
		h.count.rejoined.Add(1)
	case s.pending != nil:
		if s.answersRequest = s.pending.waiters > 0 || s.pending.closed; s.answersRequest {
			s.pending.waiters++
		}
		s.joined = &h.count.rejoined
	default:
		p, err := h.attempt.reserve(h.request, form, exchange)
		if err != nil {
			return err
		}
		s.pending, s.first, s.answersRequest = p, true, true
	}
	return nil
}

func (h *attemptCalls) Release(slots []Slot, got Delivery) {
	h.attempt.Lock()
	h.release(slots, got)
	h.attempt.Unlock()
	for _, s := range slots {
		if s.wait != nil {
			s.wait()
		}
	}
}

// release returns slots. A call that was not started yet is dropped. A client that leaves
// after it got a part has closed the stream, and another request of it is no retry. That
// is not so if the request has a name: its forwarder reads every stream to its end that
// an agent has begun to read, so if it leaves, the connection broke. The caller holds the
// lock.
func (h *attemptCalls) release(slots []Slot, got Delivery) {
	closed := got == Part && h.request.Exchange == ""
	for _, s := range slots {
		if s.first && s.wait == nil {
			h.attempt.complete(s.pending, nil, ErrAgain)
			continue
		}
		c := s.call
		if c == nil && s.answersRequest && !s.pending.leave(closed) {
			c = s.pending.call
		}
		if c != nil {
			c.Writers--
			c.Delivered = c.Delivered || closed || got == Whole
		}
	}
}
