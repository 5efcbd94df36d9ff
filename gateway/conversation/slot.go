package conversation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
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
	Release(slots []Slot, delivery Delivery)
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
	call           *Call        // the slot's call, once there is one
	pending        *pendingCall // the call that the slot waits for; nil if the call was on record
	answersRequest bool         // the pending call answers this request
	first          bool         // this request reserved the pending call
	stem           string       // of the call that is reserved if there is none; empty makes one
	wait           func()       // returns when what this request began has ended
	// joined counts the calls that other requests began.
	joined *atomic.Int64
}

// has reports whether the call or the pending call is in one of the slots.
func has(slots []Slot, c *Call, p *pendingCall) bool {
	return slices.ContainsFunc(slots, func(s Slot) bool { return c != nil && s.call == c || p != nil && s.pending == p })
}

// Head returns the parts of the reply that are known in advance.
func (s *Slot) Head(r *Request) wire.Reply {
	if s.pending == nil {
		return r.head(s.call.stem, s.call.created, s.call.Prompt)
	}
	return r.head(s.pending.stem, s.pending.created, s.pending.history.prompt)
}

// Call returns the call of the slot; nil if Wait has not returned one yet.
func (s *Slot) Call() *Call { return s.call }

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
func (s *Slot) Wait(ctx context.Context) (*Call, error) {
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

// recordedCalls are the calls of a conversation for one request.
type recordedCalls struct {
	*Conversation
	request *Request
	reread  bool // the journal was read again for the request
}

// Calls returns the calls of the conversation for a request.
func (c *Conversation) Calls(r *Request) Calls {
	return &recordedCalls{Conversation: c, request: r}
}

func (h *recordedCalls) Admit(ctx context.Context) ([]Slot, error) {
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
// the very call. awaitClosed locks mu.
func (h *recordedCalls) awaitClosed(ctx context.Context) error {
	for !h.request.Again {
		p := h.closedCall()
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

// admitOnce admits the request to the calls that there are now. It locks mu.
func (h *recordedCalls) admitOnce(ctx context.Context) ([]Slot, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.request
	if err := h.ready(ctx); err != nil {
		return nil, err
	}
	if err := h.resume(r); err != nil {
		return nil, err
	}
	if err := h.choosePolicy(r); err != nil {
		return nil, err
	}
	form, noReplay := h.canonicalize(r), h.maker.config.NoReplay
	served := h.begun.Terms.ClientSampling
	var slots []Slot
	if served && r.N > 1 {
		slots = h.findChoices(form.key, noReplay)
	} else {
		slots = make([]Slot, r.N)
		for i := range slots {
			slots[i].call, slots[i].pending = h.find(form.key, r.nameOf(i), r.Again, noReplay, slots[:i])
		}
	}
	missing := slices.ContainsFunc(slots, func(s Slot) bool { return s.call == nil && s.pending == nil })
	if missing && (r.Again || r.Reasked) && !h.reread && !noReplay {
		// Another gateway may have answered it since this one read the journal.
		h.reread = true
		h.loaded = false
		return nil, ErrAgain
	}
	for i := range slots {
		if err := h.claim(&slots[i], form, i); err != nil {
			h.release(slots[:i], Nothing)
			return nil, err
		}
	}
	if !served {
		// Equal requests get their choices in the same order, that of the occurrences.
		slices.SortStableFunc(slots, func(s, t Slot) int { return cmp.Compare(s.occurrence(), t.occurrence()) })
	}
	for i := range slots {
		if s := &slots[i]; s.first {
			s.wait = h.start(ctx, s.pending)
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
// if there is none.
func (h *recordedCalls) claim(s *Slot, form canonicalRequest, choice int) error {
	rejoined := &h.maker.count.rejoined
	switch {
	case s.call != nil:
		s.call.writers++
		if name := h.request.nameOf(choice); name != "" {
			s.call.RequestName = name
		}
		rejoined.Add(1)
	case s.pending != nil:
		if s.answersRequest = s.pending.waiters > 0 || s.pending.closed; s.answersRequest {
			s.pending.waiters++
		}
		s.joined = rejoined
	default:
		p, err := h.reserve(h.request, form, choice, s.stem)
		if err != nil {
			return err
		}
		s.pending, s.first, s.answersRequest = p, true, true
	}
	return nil
}

func (h *recordedCalls) Release(slots []Slot, delivery Delivery) {
	h.mu.Lock()
	h.release(slots, delivery)
	h.mu.Unlock()
	for _, s := range slots {
		if s.wait != nil {
			s.wait()
		}
	}
}

// release returns slots. A call that was not started yet is dropped. A client that leaves
// after it got a part has closed the stream, and another request of it is no retry. That
// is not so if the request has a name: its forwarder reads every stream to its end that
// an agent has begun to read, so if it leaves, the connection broke.
func (h *recordedCalls) release(slots []Slot, delivery Delivery) {
	closed := delivery == Part && h.request.Name == ""
	for _, s := range slots {
		if s.first && s.wait == nil {
			h.complete(s.pending, nil, ErrAgain)
			continue
		}
		call := s.call
		if call == nil && s.answersRequest && !s.pending.leave(closed) {
			call = s.pending.call
		}
		if call != nil {
			call.writers--
			call.delivered = call.delivered || closed || delivery == Whole
		}
	}
}

// servedCalls are the calls for a request outside attempts. They are not recorded.
type servedCalls struct {
	*Maker
	request *Request
	version model.VersionID
	decode  model.DecodeRequest
	cancel  context.CancelFunc
}

// Serve returns the calls of a version for a request outside attempts. They are sampled as
// decode says and not recorded.
func (m *Maker) Serve(r *Request, version model.VersionID, decode model.DecodeRequest) Calls {
	decode.Stop, decode.Form = r.Codec.Stop(), r.Form
	return &servedCalls{Maker: m, request: r, version: version, decode: decode}
}

func (h *servedCalls) Admit(ctx context.Context) ([]Slot, error) {
	ctx, h.cancel = context.WithCancel(ctx)
	slots := make([]Slot, h.request.N)
	for i := range slots {
		decode := h.decode
		decode.Seed += uint64(i)
		p := &pendingCall{
			history: history{prompt: decode.Prompt}, stem: stemOf(RandomNumber()),
			created: h.config.Now(), done: make(chan struct{}),
		}
		decode.Emit = p.feed.emitFor(h.request)
		slots[i] = Slot{pending: p, answersRequest: true, wait: GoSafely(func() {
			defer close(p.done)
			p.err = &Fault{Cause: fmt.Errorf("sampling %s was interrupted", h.version)} // remains if it panics
			p.call, p.err = h.sample(ctx, p, decode)
		})}
	}
	return slots, nil
}

func (h *servedCalls) sample(ctx context.Context, p *pendingCall, decode model.DecodeRequest) (*Call, error) {
	sampled, _, err := h.config.Sampler.Sample(ctx, h.version, decode)
	if err == nil {
		err = p.feed.check(sampled)
	}
	if err != nil {
		return nil, samplingError(err, h.version)
	}
	c := newCall(&record.Exchange{Call: record.Call{
		ID: h.request.API.ReplyID(p.stem), API: recordedAPI(h.request.API), Prompt: decode.Prompt, Completion: sampled.Tokens,
		Logprobs: sampled.Logprobs, Finish: sampled.Finish,
	}}, p.stem, h.request, p.created)
	c.Response, err = h.request.response(c)
	return c, err
}

func (h *servedCalls) Release(slots []Slot, _ Delivery) {
	h.cancel()
	for _, s := range slots {
		s.wait()
	}
}
