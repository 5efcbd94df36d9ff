package conversation

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/metrics"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// Journal records attempts and their calls. Its errors wrap record.ErrNotFound,
// record.ErrFenced and record.ErrConflict; any other is a fault of ours.
type Journal interface {
	Attempt(ctx context.Context, address record.Address) (record.Attempt, error)
	// AttemptEnd returns when the attempt was sealed or replaced by a later one; the time is
	// zero while it is open.
	AttemptEnd(ctx context.Context, address record.Address) (time.Time, error)
	// AppendCall returns once the call is committed.
	AppendCall(ctx context.Context, call *record.Exchange) error
	// Exchanges lists an attempt's calls by Seq.
	Exchanges(ctx context.Context, address record.Address) ([]record.Exchange, error)
	// EarlierExchanges lists the calls that attempts before address sampled at the same
	// rollout, attempt after attempt, each by Seq.
	EarlierExchanges(ctx context.Context, address record.Address) ([]record.Exchange, error)
}

// Config is the configuration of a Maker. All of it is required but Metrics.
type Config struct {
	Journal Journal
	Sampler model.Sampler
	// Codecs finds a codec by its name in a spec.
	Codecs func(name string) (dialog.Codec, error)
	// Prompts finds the prompts of an attempt by their digest.
	Prompts func(digest string) (prompts.Set, error)
	// Metrics counts the calls that are being sampled. It may be nil.
	Metrics *metrics.Metrics
	// NoReplay ignores what earlier attempts recorded.
	NoReplay bool
	// Now is the clock of records.
	Now func() time.Time
	Log *zap.Logger
}

// Maker opens conversations, and makes calls outside of them.
type Maker struct {
	config Config
	count  counters
}

// New returns a maker of calls.
func New(config Config) *Maker { return &Maker{config: config} }

// Stats counts the calls of a gateway since it was made.
type Stats struct {
	// Sampled counts replies that the sampler gave to attempts. Unrecorded counts those
	// of them that this gateway could not commit: they were refused, or another gateway
	// had committed the call meanwhile. Only the sampler's own log has the calls that a
	// gateway was sampling when it was killed.
	Sampled, Unrecorded int64
	// Replayed counts calls answered from the record of an earlier attempt.
	Replayed int64
	// Rejoined counts retries: requests answered with a call that another request began.
	Rejoined int64
	// Drifted counts recorded calls whose dialog continues a recorded call although a
	// full rendering of it would not begin with that call's tokens, see record.Call.Drift.
	Drifted int64
}

type counters struct{ sampled, unrecorded, replayed, rejoined, drifted atomic.Int64 }

// Stats returns the current counts.
func (m *Maker) Stats() Stats {
	return Stats{
		Sampled: m.count.sampled.Load(), Unrecorded: m.count.unrecorded.Load(),
		Replayed: m.count.replayed.Load(), Rejoined: m.count.rejoined.Load(),
		Drifted: m.count.drifted.Load(),
	}
}

// ErrWrongKey refuses a key that does not belong to the attempt.
var ErrWrongKey = errors.New("the key is not that of this attempt")

// Fault is an error of ours: the same request may be sent again, and the attempt must
// not be blamed.
type Fault struct{ Cause error }

func (f *Fault) Error() string { return f.Cause.Error() }

func (f *Fault) Unwrap() error { return f.Cause }

// LimitError refuses a call beyond the limits in the attempt's terms: on calls, or on
// tokens if Calls is 0.
type LimitError struct{ Calls, Tokens int }

func (e *LimitError) Error() string {
	if e.Calls > 0 {
		return fmt.Sprintf("the attempt has made all of its %s", readable.Count(e.Calls, "call"))
	}
	return fmt.Sprintf("the attempt has sampled all of its %s", readable.Count(e.Tokens, "token"))
}

// FormError refuses a form to which the codec can't hold a reply.
type FormError struct {
	Field string // the field of the request that asks for the form
	Err   error  // wraps dialog.ErrForm
}

func (e *FormError) Error() string { return e.Field + ": " + e.Err.Error() }

func (e *FormError) Unwrap() error { return e.Err }

// Reply returns the reply whose choices are the calls.
func (r *Request) Reply(calls ...*Call) wire.Reply {
	reply := r.head(calls[0].stem, calls[0].created, calls[0].Prompt)
	for _, c := range calls {
		choice := wire.Choice{Message: c.message, Finish: wire.Stop, Cut: c.cut, Stopped: c.stopped, Tokens: sampledTokens(r.Codec, c.Completion)}
		switch {
		case len(c.message.ToolCalls) > 0 && !c.cut:
			choice.Finish = wire.ToolCalls
		case c.Finish == "length":
			choice.Finish = wire.Length
		}
		if r.Logprobs {
			choice.Logprobs = r.TokensOf(c.Completion[:r.Length(c.Completion)], c.Logprobs)
		}
		reply.Choices = append(reply.Choices, choice)
	}
	if r.Relayed() {
		reply.PromptTokens = r.relayedPrompt(calls[0].Completion)
	}
	return reply
}

// head returns a reply without its choices.
func (r *Request) head(stem string, created time.Time, prompt []int32) wire.Reply {
	head := wire.Reply{ID: stem, Created: created, Model: r.Model, PromptTokens: len(prompt)}
	if r.Relayed() {
		head.PromptTokens = 0 // the server counts them, and reports the number at the end
	}
	return head
}

// response returns the body of the reply of one call.
func (r *Request) response(c *Call) ([]byte, error) {
	one := *r.Request
	one.N = 1 // other choices are calls of their own
	body, err := one.Encode(r.Reply(c))
	if err != nil {
		return nil, &Fault{fmt.Errorf("encode reply %s: %w", c.ID, err)}
	}
	return body, nil
}

// TokensOf returns tokens with their log-probabilities, in the form that clients read.
func (r *Request) TokensOf(tokens []int32, logprobs []float32) []wire.Token {
	out := []wire.Token{}
	if relay, ok := r.Codec.(dialog.Relay); ok {
		for _, p := range relay.Pieces(tokens, logprobs) {
			out = append(out, wire.Token{Text: p.Text, Logprob: p.Logprob, Bytes: []byte(p.Text)})
		}
		return out
	}
	speller, ok := r.Codec.(dialog.Speller)
	for i, t := range tokens {
		token := wire.Token{Text: r.Codec.Text([]int32{t}), Logprob: logprobs[i]}
		if ok {
			token.Bytes = speller.Bytes(t)
		}
		out = append(out, token)
	}
	return out
}

// content is a decoded completion.
type content struct {
	message dialog.Message
	stopped string // the stop text that ended it, which is not part of the message
	problem string // why text that looks like a tool call is not one
	cut     bool   // the tool calls are whole, but one after them was cut off
}

// parse decodes a completion; the ids of its tool calls share the stem. If the request
// wants at most one call, parse drops the calls after the first. They stay in the tokens:
// the policy sampled them, and continues from there.
func (r *Request) parse(completion []int32, stem string) content {
	var p content
	if r.bareText() {
		p.message = dialog.Message{Role: dialog.Assistant, Content: r.Codec.Text(completion[:r.Length(completion)])}
	} else {
		p.message, p.problem = r.Codec.Parse(completion, r.callable, toolCallIDs(stem))
		if p.problem != "" && r.Form != nil && r.Form.Call {
			p = r.withWholeCalls(p, completion, stem)
		}
	}
	if r.Serial && len(p.message.ToolCalls) > 1 {
		p.message.ToolCalls = p.message.ToolCalls[:1]
	}
	if at, stop := firstOf(p.message.Content, r.stops()); at >= 0 {
		p.message.Content, p.message.ToolCalls, p.stopped = p.message.Content[:at], nil, stop
	}
	return p
}

// withWholeCalls returns the result for a reply that had to call a tool and was cut off
// in one of several calls. The calls before that one are whole, and the agent need not
// lose them.
func (r *Request) withWholeCalls(p content, completion []int32, stem string) content {
	cutter, ok := r.Codec.(dialog.Cutter)
	if !ok {
		return p
	}
	whole := cutter.WholeCalls(completion)
	if whole == nil {
		return p
	}
	message, problem := r.Codec.Parse(whole, r.callable, toolCallIDs(stem))
	if problem != "" {
		return p
	}
	return content{message: message, problem: fmt.Sprintf("tool call %d cut off before its end", len(message.ToolCalls)), cut: !r.Serial}
}

// bareText reports whether all tokens of a reply are text, without structure.
func (r *Request) bareText() bool { return r.API == wire.Completions && !r.Relayed() }

// Length returns the number of tokens before the one that ended the completion.
func (r *Request) Length(completion []int32) int {
	stop := r.Codec.Stop()
	if n := slices.IndexFunc(completion, func(t int32) bool { return slices.Contains(stop, t) }); n >= 0 {
		return n
	}
	return len(completion)
}

// partial returns the text of an incomplete completion, as far as it is certain.
func (r *Request) partial(completion []int32) string { return r.Codec.Partial(completion, r.callable) }

// reasoning returns the reasoning in a completion before its text.
func (r *Request) reasoning(completion []int32) string {
	if r.API == wire.Completions {
		return ""
	}
	m, _ := r.Codec.Parse(completion, r.callable, toolCallIDs(""))
	return m.Reasoning
}

// firstOf returns the first stop text in text and where it begins. If several begin
// there, it returns the longest. If there is none, at is -1.
func firstOf(text string, stops []string) (at int, stop string) {
	at = -1
	for _, s := range stops {
		n := strings.Index(text, s)
		if n >= 0 && (at < 0 || n < at || n == at && len(s) > len(stop)) {
			at, stop = n, s
		}
	}
	return at, stop
}

const (
	// RecordLimit is how long a commit may take before the call counts as not
	// recorded.
	RecordLimit = 30 * time.Second
	// recordTries bounds how often a call gets a new number because another gateway
	// records calls of the same attempt.
	recordTries = 16
)

// start samples or replays a call in a new goroutine. The call goes on if the request
// that began it ends, because other requests may join.
func (c *Conversation) start(ctx context.Context, p *pendingCall) (wait func()) {
	pending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.cancel = cancel
	return GoSafely(func() {
		defer cancel()
		if p.source != nil {
			c.replay(pending, p)
		} else {
			c.sampleAndRecord(pending, p)
		}
	})
}

// sampleAndRecord samples and records a call, and completes it whatever happens. It locks
// mu once the call is sampled.
func (c *Conversation) sampleAndRecord(ctx context.Context, p *pendingCall) {
	r, terms := p.request, c.begun.Terms
	exchange := &record.Exchange{Call: record.Call{
		Address: c.address, Agent: r.Agent, Policy: p.policy, Version: terms.VersionOf(p.policy), API: recordedAPI(r.API),
		Key: p.form.key, Occurrence: p.occurrence, Prompt: p.history.prompt, Parent: p.history.parent, Seed: p.seed, Temperature: terms.Temperature,
		ID: r.API.ReplyID(p.stem), RequestName: p.name, Started: c.maker.config.Now().UTC(),
	}, Request: r.Body}
	if terms.ClientSampling {
		exchange.Temperature, exchange.TopP = r.sampling()
	}
	// This error remains if a sampler or a codec panics, so that no request waits forever.
	var call *Call
	var err error = &Fault{Cause: errors.New("call " + exchange.ID + " was interrupted")}
	locked := false
	defer func() {
		if !locked {
			c.mu.Lock()
		}
		defer c.mu.Unlock()
		c.complete(p, call, err)
	}()
	waitDrift := func() {}
	if drifted := p.history.drifted; drifted != nil {
		waitDrift = GoSafely(func() { exchange.Drift = drifted() })
	}
	sampling := c.maker.sample(ctx, p, exchange)
	waitDrift()
	if sampling != nil {
		err = sampling
		return
	}
	defer func() {
		if !p.committed {
			c.maker.count.unrecorded.Add(1)
		}
	}()
	if exchange.Form, err = r.encodedForm(); err != nil {
		return
	}
	c.mu.Lock()
	locked = true
	// A sampled completion is recorded even if no request waits for it any more.
	if call, err = c.record(ctx, p, exchange); err != nil && !errors.Is(err, ErrAgain) && r.Served != nil && r.Served.Deliver {
		call, err = c.deliverUnrecorded(p, exchange, err)
	}
}

// sample samples the completion that the record describes, and stores it in the record.
func (m *Maker) sample(ctx context.Context, p *pendingCall, exchange *record.Exchange) error {
	version := model.VersionID{Run: exchange.Run, Policy: exchange.Policy, Number: exchange.Version}
	var timing model.Timing
	defer m.config.Metrics.Sampling()()
	sampled, weights, err := m.config.Sampler.Sample(ctx, version, model.DecodeRequest{
		Prompt: exchange.Prompt, MaxTokens: p.maxTokens, Temperature: exchange.Temperature, TopP: exchange.TopP, Stop: p.request.Codec.Stop(), Seed: p.seed,
		Form: p.request.Form, Emit: p.feed.emitFor(p.request), Timing: &timing,
	})
	if err == nil {
		err = p.feed.check(sampled)
	}
	if err != nil {
		return samplingError(err, version)
	}
	m.count.sampled.Add(1)
	exchange.Duration = m.config.Now().Sub(exchange.Started)
	exchange.Completion, exchange.Logprobs, exchange.Untrained = sampled.Tokens, sampled.Logprobs, sampled.Forced
	exchange.Finish, exchange.Weights, exchange.Server = sampled.Finish, weights, sampled.Server
	exchange.Sampling = record.Sampling(timing)
	return nil
}

// samplingError separates requests that no sampler would ever answer from other errors of
// a sampler, which are faults of ours.
func samplingError(err error, v model.VersionID) error {
	if errors.Is(err, model.ErrPromptTooLong) || errors.Is(err, model.ErrForm) || errors.Is(err, model.ErrRefused) || errors.Is(err, model.ErrRow) {
		return err
	}
	return &Fault{Cause: fmt.Errorf("sample %s: %w", v, err)}
}

// replay answers p with the call that an earlier attempt sampled: same id, tokens and
// bytes, now on record as a call of this attempt. The prompt is the recorded one, even if
// the request differs in ignored text. replay locks mu.
func (c *Conversation) replay(ctx context.Context, p *pendingCall) {
	exchange := *p.source
	exchange.Address, exchange.ReplayedFrom, exchange.Request, exchange.RequestName = c.address, p.source.Attempt, p.request.Body, p.name
	exchange.Started, exchange.Duration, exchange.Divergence, exchange.PartlyRead = c.maker.config.Now().UTC(), 0, nil, false
	exchange.Sampling = record.Sampling{}
	var call *Call
	var err error = &Fault{Cause: errors.New("replay of call " + exchange.ID + " was interrupted")}
	c.mu.Lock()
	defer func() {
		c.complete(p, call, err)
		c.mu.Unlock()
	}()
	if call, err = c.record(ctx, p, &exchange); p.committed {
		c.maker.count.replayed.Add(1)
	}
}

// record commits a call and adds it to the attempt. If another gateway recorded calls
// meanwhile, the call gets a new number. It is given up if the attempt has the same call,
// or if it should have been sampled after other tokens.
func (c *Conversation) record(ctx context.Context, p *pendingCall, exchange *record.Exchange) (*Call, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RecordLimit)
	defer cancel()
	exchange.PartlyRead = p.closed && p.waiters == 0
	var conflict error
	for range recordTries {
		if err := c.ready(ctx); err != nil {
			return nil, err
		}
		if c.begun.Terms.ClientSampling {
			// Equal requests of clients are samples of their own, whatever was recorded
			// meanwhile, and this one may already have been read.
			if call := c.recorded(exchange.ID); call != nil {
				if !call.redacted && !slices.Equal(call.Completion, exchange.Completion) {
					return nil, ErrAgain // another gateway answered the same choice of a retry
				}
				return call, nil
			}
			conflict = nil
			c.renumber(p, exchange)
		}
		if call := c.repeatsOf(exchange.Key).at(exchange.Occurrence); call != nil {
			return c.adopt(call, p)
		}
		if conflict != nil && !c.sameHistory(p, exchange) {
			return nil, ErrAgain
		}
		call, err := c.commit(ctx, p.request, p.form, exchange, p.created)
		if !errors.Is(err, record.ErrConflict) {
			if p.committed = err == nil; p.committed && exchange.Drift {
				c.maker.count.drifted.Add(1)
			}
			if p.committed && exchange.Served != nil {
				c.maker.config.Metrics.Served(true)
			}
			return call, err
		}
		c.loaded = false
		conflict = err
	}
	return nil, &Fault{Cause: fmt.Errorf("record call %s: %w", exchange.ID, conflict)}
}

// adopt answers p with the call on record in its place, if that call is for the same
// request of the agent and not for an equal one.
func (c *Conversation) adopt(call *Call, p *pendingCall) (*Call, error) {
	if call.RequestName != p.name && call.RequestName != "" && p.name != "" {
		return nil, ErrAgain
	}
	c.maker.count.rejoined.Add(1)
	return call, nil
}

// sameHistory reports whether p would be sampled after the same tokens given the calls
// that are on record now. If so, it sets the parent in the record accordingly.
func (c *Conversation) sameHistory(p *pendingCall, exchange *record.Exchange) bool {
	if p.source != nil {
		return true
	}
	form := c.canonicalize(p.request)
	h, err := c.historyOf(p.request, form)
	if err != nil || form.key != p.form.key || !slices.Equal(h.prompt, p.history.prompt) {
		return false
	}
	p.form, exchange.Parent = form, h.parent
	return true
}

// GoSafely runs f in a new goroutine. The caller has to call wait before its request
// ends. wait returns when f has returned. If f panicked, wait panics in the goroutine of
// the caller, where the server can handle it.
func GoSafely(f func()) (wait func()) {
	done := make(chan struct{})
	var panicked any
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
		}()
		f()
	}()
	return func() {
		if <-done; panicked != nil {
			panic(panicked)
		}
	}
}
