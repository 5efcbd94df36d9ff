package conversation

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/trace"
)

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
	record := &trace.Exchange{Call: trace.Call{
		Address: c.address, Agent: r.Agent, Policy: terms.Policy, Version: terms.Version, API: recordedAPI(r.API),
		Key: p.form.key, Occurrence: p.occurrence, Prompt: p.history.prompt, Parent: p.history.parent, Seed: p.seed, Temperature: terms.Temperature,
		ID: r.API.ReplyID(p.stem), RequestName: p.name, Started: c.maker.config.Now().UTC(),
	}, Request: r.Body}
	// This error remains if a sampler or a codec panics, so that no request waits forever.
	var call *Call
	var err error = &Fault{Cause: errors.New("call " + record.ID + " was interrupted")}
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
		waitDrift = GoSafely(func() { record.Drift = drifted() })
	}
	sampling := c.maker.sample(ctx, p, record)
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
	if record.Form, err = r.encodedForm(); err != nil {
		return
	}
	c.mu.Lock()
	locked = true
	// A sampled completion is recorded even if no request waits for it any more.
	call, err = c.record(ctx, p, record)
}

// sample samples the completion that the record describes, and stores it in the record.
func (m *Maker) sample(ctx context.Context, p *pendingCall, record *trace.Exchange) error {
	version := model.VersionID{Run: record.Run, Policy: record.Policy, Number: record.Version}
	var timing model.Timing
	sampled, weights, err := m.config.Sampler.Sample(ctx, version, model.DecodeRequest{
		Prompt: record.Prompt, MaxTokens: p.maxTokens, Temperature: record.Temperature, Stop: p.request.Codec.Stop(), Seed: p.seed,
		Form: p.request.Form, Emit: p.feed.emitFor(p.request), Timing: &timing,
	})
	if err == nil {
		err = p.feed.check(sampled)
	}
	if err != nil {
		return samplingError(err, version)
	}
	m.count.sampled.Add(1)
	record.Duration = m.config.Now().Sub(record.Started)
	record.Completion, record.Logprobs, record.Untrained = sampled.Tokens, sampled.Logprobs, sampled.Forced
	record.Finish, record.Weights, record.Server = sampled.Finish, weights, sampled.Server
	record.Sampling = trace.Sampling(timing)
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
	record := *p.source
	record.Address, record.ReplayedFrom, record.Request, record.RequestName = c.address, p.source.Attempt, p.request.Body, p.name
	record.Started, record.Duration, record.Divergence, record.PartlyRead = c.maker.config.Now().UTC(), 0, nil, false
	record.Sampling = trace.Sampling{}
	var call *Call
	var err error = &Fault{Cause: errors.New("replay of call " + record.ID + " was interrupted")}
	c.mu.Lock()
	defer func() {
		c.complete(p, call, err)
		c.mu.Unlock()
	}()
	if call, err = c.record(ctx, p, &record); p.committed {
		c.maker.count.replayed.Add(1)
	}
}

// record commits a call and adds it to the attempt. If another gateway recorded calls
// meanwhile, the call gets a new number. It is given up if the attempt has the same call,
// or if it should have been sampled after other tokens.
func (c *Conversation) record(ctx context.Context, p *pendingCall, record *trace.Exchange) (*Call, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RecordLimit)
	defer cancel()
	record.PartlyRead = p.closed && p.waiters == 0
	var conflict error
	for range recordTries {
		if err := c.ready(ctx); err != nil {
			return nil, err
		}
		if call := c.repeatsOf(record.Key).at(record.Occurrence); call != nil {
			return c.adopt(call, p)
		}
		if conflict != nil && !c.sameHistory(p, record) {
			return nil, ErrAgain
		}
		call, err := c.commit(ctx, p.request, p.form, record, p.created)
		if !errors.Is(err, trace.ErrConflict) {
			if p.committed = err == nil; p.committed && record.Drift {
				c.maker.count.drifted.Add(1)
			}
			return call, err
		}
		c.loaded = false
		conflict = err
	}
	return nil, &Fault{Cause: fmt.Errorf("record call %s: %w", record.ID, conflict)}
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
func (c *Conversation) sameHistory(p *pendingCall, record *trace.Exchange) bool {
	if p.source != nil {
		return true
	}
	form := c.canonicalize(p.request)
	h, err := c.historyOf(p.request, form)
	if err != nil || form.key != p.form.key || !slices.Equal(h.prompt, p.history.prompt) {
		return false
	}
	p.form, record.Parent = form, h.parent
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
