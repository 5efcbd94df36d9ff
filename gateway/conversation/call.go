package conversation

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// Call is a sampled call and the content of its reply. It is a recorded call of an
// attempt, or a served one outside attempts.
type Call struct {
	record.Exchange        // as recorded, without the body of the request
	stem            string // the part that its ids share
	content
	created time.Time

	// The conversation's mu guards the fields about the delivery.
	writers   int  // requests that are being answered with it
	delivered bool // its response was once written completely, as far as known

	sequence  []int32 // prompt and completion, with room for a call that continues it
	continued bool    // another call already uses the room
	bytes     int     // memory that the call takes, without what it shares with its parent

	head *Call // the recorded call that its dialog continues
	// Requests of the Responses API may name the reply that they continue. For such
	// requests the call keeps its own request, and the dialog with the reply but without
	// instructions.
	request *wire.Request
	dialog  []dialog.Message
	hidden  bool // requests can't name it any more

	// redacted says that the call lacks what its client got: it neither answers a request nor
	// is continued.
	redacted bool
}

// newCall returns the call of a record; r is the request that the call answers.
func newCall(exchange *record.Exchange, stem string, r *Request, created time.Time) *Call {
	c := &Call{Exchange: *exchange, stem: stem, created: created}
	c.parse(r)
	return c
}

// parse decodes the completion.
func (c *Call) parse(r *Request) {
	c.content = r.parse(c.Completion, c.stem)
	if c.api() == wire.Responses {
		c.request, c.dialog, c.hidden = r.Request, append(r.input(), c.message), r.Forget
	}
}

// restore returns the call of a record, and the request that it answered. A call that is
// returned with an error can't be continued, but is otherwise valid.
func (c *Conversation) restore(exchange *record.Exchange) (*Call, *Request, error) {
	call := &Call{Exchange: *exchange, stem: c.stemOfCall(exchange), created: createdOf(exchange), delivered: true}
	call.Request = nil
	if call.redacted = len(exchange.Completion) == 0 && c.begun.Terms.ClientSampling; call.redacted {
		return call, nil, errRedacted
	}
	request, err := wire.Decode(call.api(), exchange.Request)
	if err != nil {
		return call, nil, err
	}
	r, err := recordedRequest(c.codec, request, exchange.Form)
	if err != nil {
		return call, nil, err
	}
	r.Agent, r.policy = exchange.Agent, exchange.Policy
	if err := c.resume(r); err != nil {
		return call, nil, err
	}
	call.parse(r)
	return call, r, nil
}

// commit writes a call to the journal as the attempt's next one and adds it. An error that
// wraps record.ErrConflict says that another gateway has recorded calls meanwhile. The
// caller has set the parent of a call that is not replayed.
func (c *Conversation) commit(ctx context.Context, r *Request, form canonicalRequest, exchange *record.Exchange, created time.Time) (*Call, error) {
	exchange.Seq = len(c.calls)
	replayed := exchange.ReplayedFrom != 0
	if replayed {
		exchange.Parent = c.longestPrefix(exchange.Policy, exchange.Prompt)
	} else {
		exchange.Divergence = c.divergence(ctx, form)
	}
	call := newCall(exchange, c.stemOfCall(exchange), r, created)
	exchange.ParseError = call.problem
	if !replayed {
		var err error
		if exchange.Response, err = r.response(call); err != nil {
			return nil, err
		}
	}
	exchange.Served = c.servedCall(r, call)
	stored, err := c.redact(ctx, r, exchange)
	if err != nil {
		return nil, err
	}
	err = c.maker.config.Journal.AppendCall(ctx, stored)
	switch {
	case errors.Is(err, record.ErrConflict):
		return nil, err
	case errors.Is(err, record.ErrFenced):
		c.fence()
		return nil, err
	case err != nil:
		// The journal may have committed it nevertheless.
		c.loaded = false
		c.maker.config.Log.Warn("call not recorded", zap.Stringer("rollout", c.address), zap.String("call", exchange.ID), zap.Error(err))
		return nil, &Fault{fmt.Errorf("append call %s: %w", exchange.ID, err)}
	}
	call.Exchange = *exchange
	call.Request = nil
	c.diverged = c.diverged || exchange.Divergence != nil
	if stored != exchange {
		c.add(&Call{Exchange: *stored, stem: call.stem, created: created, redacted: true})
		return call, nil
	}
	c.add(call)
	c.tree.add(call, form)
	return call, nil
}

// api returns the API of the call. Calls of Chat have none on record, see recordedAPI:
// the first releases had no other API.
func (c *Call) api() wire.API {
	if c.API == "" {
		return wire.Chat
	}
	return wire.API(c.API)
}

// recordedAPI returns an API as calls record it: Chat as the empty string.
func recordedAPI(api wire.API) string {
	if api == wire.Chat {
		return ""
	}
	return string(api)
}

// createdOf returns the creation time in the reply of a call, or when the call began if
// the reply has none.
func createdOf(exchange *record.Exchange) time.Time {
	var times struct {
		Created   float64 `json:"created"`
		CreatedAt float64 `json:"created_at"`
	}
	// A response is ours; if it can't be read, it has no time.
	if err := json.Unmarshal(exchange.Response, &times); err != nil || times.Created+times.CreatedAt == 0 {
		return exchange.Started
	}
	return time.Unix(int64(times.Created+times.CreatedAt), 0)
}

// begins reports whether ids begin with the prompt and the completion of the call.
func (c *Call) begins(ids []int32) bool {
	n, all := len(c.Prompt), len(c.Prompt)+len(c.Completion)
	return all <= len(ids) && slices.Equal(c.Completion, ids[n:all]) && slices.Equal(c.Prompt, ids[:n])
}

// longestPrefix returns the Seq of the policy's call that the prompt continues, the longest
// if it continues several, or -1.
func (c *Conversation) longestPrefix(policy string, prompt []int32) int {
	longest, seq := 0, -1
	for _, call := range slices.Backward(c.calls) {
		if all := len(call.Prompt) + len(call.Completion); !call.redacted && all > longest && call.Policy == policy && call.begins(prompt) {
			longest, seq = all, call.Seq
		}
	}
	return seq
}

// seedOf returns the seed of a call. It does not depend on the run's name or the
// attempt's number, so equal runs and repeated attempts sample the same.
func seedOf(runSeed uint64, r record.RolloutID, key string, occurrence int) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "fulgurite call\n%d\n%s\n%d\n%d\n%d\n%s\n%d\n",
		runSeed, r.Kind, r.Step, r.Task, r.Sample, key, occurrence))
	return binary.BigEndian.Uint64(sum[:])
}

// stemOf returns the part that the ids of a call share, 24 hex digits.
func stemOf(seed uint64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "fulgurite id\n%d\n", seed))
	return hex.EncodeToString(sum[:12])
}

// toolCallIDs returns a function that returns the id of a reply's k-th tool call.
func toolCallIDs(stem string) func(k int) string {
	return func(k int) string { return fmt.Sprintf("call_%s_%d", stem, k) }
}

// RandomNumber returns a seed for calls whose seed does not follow from an attempt.
func RandomNumber() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}

// pendingCall is a call that is being sampled and recorded. One request waits for it, or
// several equal ones.
type pendingCall struct {
	request    *Request
	policy     string // that answers it
	name       string // of the one choice that the call is for
	form       canonicalRequest
	occurrence int
	seed       uint64
	maxTokens  int
	source     *record.Exchange // the call of an earlier attempt to replay; nil to sample
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
	if slices.ContainsFunc(calls, func(call *Call) bool { return call.redacted }) {
		calls = slices.DeleteFunc(slices.Clone(calls), func(call *Call) bool { return call.redacted })
	}
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

// reserve begins a pending call, or refuses it by the attempt's limits. Only calls of served
// versions are given a stem; if it is empty, they get a random one.
func (c *Conversation) reserve(r *Request, form canonicalRequest, choice int, stem string) (*pendingCall, error) {
	terms := c.begun.Terms
	if terms.MaxCalls > 0 && len(c.calls)+c.inFlight >= terms.MaxCalls {
		return nil, &LimitError{Calls: terms.MaxCalls}
	}
	p := &pendingCall{request: r, policy: r.policy, name: r.nameOf(choice), form: form, maxTokens: c.replyLimit(r.Request), waiters: 1, done: make(chan struct{})}
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
	if terms.ClientSampling {
		// The client's seed may be the same for all its requests, so ids don't follow from it.
		if p.seed, p.stem = r.seedOf(choice), stem; stem == "" {
			p.stem = newStem()
		}
	}
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
		if terms.ClientSampling {
			p.created = c.maker.config.Now()
		}
	}
	c.repeatsOf(form.key).failed = false
	c.pending[form.key] = append(c.pending[form.key], p)
	c.inFlight++
	return p, nil
}

// freeOccurrence returns the lowest occurrence that is neither recorded nor in flight.
func (c *Conversation) freeOccurrence(key string) int {
	return c.freeOccurrenceFor(nil, key)
}

// freeOccurrenceFor is freeOccurrence for a call in flight, whose own occurrence counts as free.
func (c *Conversation) freeOccurrenceFor(self *pendingCall, key string) int {
	n, recorded, pending := 0, c.repeatsOf(key), c.pending[key]
	for recorded.at(n) != nil || slices.ContainsFunc(pending, func(p *pendingCall) bool { return p != self && p.occurrence == n }) {
		n++
	}
	return n
}
