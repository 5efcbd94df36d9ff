package inflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/gateway/conversation"
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
// that began it ends, since other requests may join.
func (m *Maker) start(ctx context.Context, a *Attempt, p *pendingCall) (wait func()) {
	pending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.cancel = cancel
	return GoSafely(func() {
		defer cancel()
		if p.source != nil {
			m.replay(pending, a, p)
		} else {
			m.sampleAndRecord(pending, a, p)
		}
	})
}

// sampleAndRecord samples and records a call, and completes it whatever happens.
func (m *Maker) sampleAndRecord(ctx context.Context, a *Attempt, p *pendingCall) {
	r, terms := p.request, a.Begun().Terms
	record := &trace.Exchange{Call: trace.Call{
		Address: a.Address(), Agent: r.Agent, Policy: terms.Policy, Version: terms.Version, API: conversation.RecordedAPI(r.API),
		Key: p.form.Key, Occurrence: p.occurrence, Prompt: p.history.Prompt, Parent: p.history.Parent, Seed: p.seed, Temperature: terms.Temperature,
		ID: r.API.ReplyID(p.stem), Exchange: p.exchange, Started: m.config.Now().UTC(),
	}, Request: r.Body}
	// This error remains if a sampler or a codec panics, so that no request waits forever.
	var c *conversation.Call
	var err error = &conversation.Fault{Cause: errors.New("call " + record.ID + " was interrupted")}
	locked := false
	defer func() {
		if !locked {
			a.Lock()
		}
		defer a.Unlock()
		a.complete(p, c, err)
	}()
	waitDrift := func() {}
	if drifted := p.history.Drifted; drifted != nil {
		waitDrift = GoSafely(func() { record.Drift = drifted() })
	}
	sampling := m.sample(ctx, p, record)
	waitDrift()
	if sampling != nil {
		err = sampling
		return
	}
	defer func() {
		if !p.committed {
			m.count.unrecorded.Add(1)
		}
	}()
	if record.Form, err = r.EncodedForm(); err != nil {
		return
	}
	a.Lock()
	locked = true
	// A sampled completion is recorded even if no request waits for it any more.
	c, err = m.record(ctx, a, p, record)
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
	return &conversation.Fault{Cause: fmt.Errorf("sample %s: %w", v, err)}
}

// replay answers p with the call that an earlier attempt sampled: same id, tokens and
// bytes, now on record as a call of this attempt. The prompt is the recorded one, even if
// the request differs in ignored text.
func (m *Maker) replay(ctx context.Context, a *Attempt, p *pendingCall) {
	record := *p.source
	record.Address, record.ReplayedFrom, record.Request, record.Exchange = a.Address(), p.source.Attempt, p.request.Body, p.exchange
	record.Started, record.Duration, record.Divergence, record.PartlyRead = m.config.Now().UTC(), 0, nil, false
	record.Sampling = trace.Sampling{}
	var c *conversation.Call
	var err error = &conversation.Fault{Cause: errors.New("replay of call " + record.ID + " was interrupted")}
	a.Lock()
	defer func() {
		a.complete(p, c, err)
		a.Unlock()
	}()
	if c, err = m.record(ctx, a, p, &record); p.committed {
		m.count.replayed.Add(1)
	}
}

// record commits a call and adds it to the attempt. If another gateway recorded calls
// meanwhile, the call gets a new number. It is given up if the attempt has the same call,
// or if it should have been sampled after other tokens. The caller holds the lock.
func (m *Maker) record(ctx context.Context, a *Attempt, p *pendingCall, record *trace.Exchange) (*conversation.Call, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RecordLimit)
	defer cancel()
	record.PartlyRead = p.closed && p.waiters == 0
	var conflict error
	for range recordTries {
		if err := a.Ready(ctx); err != nil {
			return nil, err
		}
		if c := a.Repeats(record.Key).At(record.Occurrence); c != nil {
			return m.adopt(c, p)
		}
		if conflict != nil && !a.sameHistory(p, record) {
			return nil, ErrAgain
		}
		c, err := a.Append(ctx, p.request, p.form, record, p.created)
		if !errors.Is(err, trace.ErrConflict) {
			if p.committed = err == nil; p.committed && record.Drift {
				m.count.drifted.Add(1)
			}
			return c, err
		}
		a.Reload()
		conflict = err
	}
	return nil, &conversation.Fault{Cause: fmt.Errorf("record call %s: %w", record.ID, conflict)}
}

// adopt answers p with the call on record in its place, if that call is for the same
// request of the agent and not for an equal one.
func (m *Maker) adopt(c *conversation.Call, p *pendingCall) (*conversation.Call, error) {
	if c.Call.Exchange != p.exchange && c.Call.Exchange != "" && p.exchange != "" {
		return nil, ErrAgain
	}
	m.count.rejoined.Add(1)
	return c, nil
}

// sameHistory reports whether p would be sampled after the same tokens given the calls
// that are on record now. If so, it sets the parent in the record accordingly. The caller
// holds the lock.
func (a *Attempt) sameHistory(p *pendingCall, record *trace.Exchange) bool {
	if p.source != nil {
		return true
	}
	form := a.Canonicalize(p.request)
	h, err := a.History(p.request, form)
	if err != nil || form.Key != p.form.Key || !slices.Equal(h.Prompt, p.history.Prompt) {
		return false
	}
	p.form, record.Parent = form, h.Parent
	return true
}
