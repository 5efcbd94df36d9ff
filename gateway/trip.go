package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

const (
	// recordLimit is how long a commit may take before the call counts as not
	// recorded.
	recordLimit = 30 * time.Second
	// recordTries bounds how often a call is numbered anew because another gateway
	// records calls of the same attempt.
	recordTries = 16
)

// trip is what a flight needs.
type trip struct {
	*question
	exchange  string // of the one choice that it is for
	form      canonical
	flight    *flight
	source    *trace.Exchange // what an earlier attempt sampled; else what follows decides
	history   history
	seed      uint64
	maxTokens int
	committed bool
}

// takeOff begins a call, or refuses it for the attempt's limits. The caller
// holds mu.
func (a *attempt) takeOff(q *question, form canonical, exchange string) (*trip, error) {
	terms := a.begun.Terms
	if terms.MaxCalls > 0 && len(a.calls)+a.flying >= terms.MaxCalls {
		return nil, &wire.Failure{Status: http.StatusBadRequest, Code: "call_limit", Message: fmt.Sprintf("the attempt has made all of its %d calls", terms.MaxCalls)}
	}
	t := &trip{question: q, exchange: exchange, form: form, maxTokens: a.replyLimit(q.order.request)}
	if terms.TokenBudget > 0 {
		left := terms.TokenBudget - a.tokens
		if left <= 0 {
			return nil, &wire.Failure{Status: http.StatusBadRequest, Code: "token_limit", Message: fmt.Sprintf("the attempt has sampled all of its %d tokens", terms.TokenBudget)}
		}
		t.maxTokens = min(t.maxTokens, left)
	}
	repeats := a.repeatsOf(form.key)
	occurrence := repeats.free()
	t.seed = seedOf(terms.RunSeed, a.address.RolloutID, form.key, occurrence)
	t.flight = &flight{occurrence: occurrence, exchange: exchange, stem: idOf(t.seed)}
	if t.source = a.earlier.find(form.key, occurrence); t.source != nil {
		t.flight.prompt, t.flight.created = t.source.Prompt, createdOf(t.source.Response, t.source.Started)
	} else {
		var err error
		if t.history, err = a.history(q, form); err != nil {
			return nil, err
		}
		// No clock: a call that is sampled again because it was lost is the same.
		t.flight.prompt, t.flight.created = t.history.prompt, a.begun.Begun
	}
	repeats.begin(t.flight)
	a.flying++
	return t, nil
}

// launch lets a call go on without the request that began it, since others may join.
func (g *Gateway) launch(ctx context.Context, a *attempt, t *trip) (wait func()) {
	flying, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t.flight.cancel = cancel
	return aside(func() {
		defer cancel()
		if t.source != nil {
			g.replay(flying, a, t)
		} else {
			g.fly(flying, a, t)
		}
	})
}

// fly samples and records, and ends the flight whatever happens.
func (g *Gateway) fly(ctx context.Context, a *attempt, t *trip) {
	terms := a.begun.Terms
	record := &trace.Exchange{Call: trace.Call{
		Address: a.address, Agent: t.agent, Policy: terms.Policy, Version: terms.Version, API: recordedAPI(t.order.request.API),
		Key: t.form.key, Occurrence: t.flight.occurrence, Prompt: t.history.prompt, Seed: t.seed, Temperature: terms.Temperature,
		ID: t.order.request.API.ReplyID(t.flight.stem), Exchange: t.exchange, Started: g.config.Now().UTC(),
	}, Request: t.body}
	// Stands if a sampler or a codec panics: nobody should wait for it forever.
	var c *call
	err := error(fault(errors.New("call " + record.ID + " was interrupted")))
	locked := false
	defer func() {
		if !locked {
			a.mu.Lock()
		}
		defer a.mu.Unlock()
		a.land(t.form.key, t.flight, c, err)
	}()
	drifts := aside(func() { record.Drift = t.history.drifted() })
	sampling := g.sample(ctx, t, record)
	drifts()
	if sampling != nil {
		err = sampling
		return
	}
	defer func() {
		if !t.committed {
			g.count.unrecorded.Add(1)
		}
	}()
	if record.Form, err = t.order.written(); err != nil {
		return
	}
	a.mu.Lock()
	locked = true
	// What was sampled is recorded even if nobody waits for it any more.
	c, err = g.record(ctx, a, t, record)
}

// sample samples what the record says into it.
func (g *Gateway) sample(ctx context.Context, t *trip, record *trace.Exchange) error {
	version := model.VersionID{Run: record.Run, Policy: record.Policy, Number: record.Version}
	sampled, weights, err := g.config.Sampler.Sample(ctx, version, model.DecodeRequest{
		Prompt: record.Prompt, MaxTokens: t.maxTokens, Temperature: record.Temperature, Stop: t.order.codec.Stop(), Seed: t.seed,
		Form: t.order.form, Emit: t.flight.feed.tap(t.order),
	})
	if err == nil {
		err = t.flight.feed.check(sampled)
	}
	if err != nil {
		return samplingFailure(err, version)
	}
	g.count.sampled.Add(1)
	record.Duration = g.config.Now().Sub(record.Started)
	record.Completion, record.Logprobs, record.Untrained = sampled.Tokens, sampled.Logprobs, sampled.Forced
	record.Finish, record.Weights = sampled.Finish, weights
	return nil
}

// samplingFailure tells a prompt that can't be answered, or not in the form that is
// wanted, from all else that keeps a sampler from answering, which is a fault of ours.
func samplingFailure(err error, v model.VersionID) error {
	if errors.Is(err, model.ErrPromptTooLong) || errors.Is(err, model.ErrForm) || errors.Is(err, model.ErrRefused) {
		return err
	}
	return fault(fmt.Errorf("sample %s: %w", v, err))
}

// record commits a call and adds it to the attempt. Where another gateway
// recorded calls meanwhile, it is numbered anew, and given up if the attempt has
// its like or should have sampled it after other tokens. The caller holds mu.
func (g *Gateway) record(ctx context.Context, a *attempt, t *trip, record *trace.Exchange) (*call, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordLimit)
	defer cancel()
	var conflict error
	for range recordTries {
		if err := a.ready(ctx, g); err != nil {
			return nil, err
		}
		if c := a.repeatsOf(record.Key).at(record.Occurrence); c != nil {
			return g.concede(c, t)
		}
		if conflict != nil && !a.stands(t) {
			return nil, errAgain
		}
		c, err := g.append(ctx, a, t, record)
		if !errors.Is(err, trace.ErrConflict) {
			return c, err
		}
		a.loaded, conflict = false, err
	}
	return nil, fault(fmt.Errorf("record call %s: %w", record.ID, conflict))
}

// concede answers t with the call that is on record in its place, if that is the
// same request of the agent and not another like it.
func (g *Gateway) concede(c *call, t *trip) (*call, error) {
	if c.exchange != t.exchange && c.exchange != "" && t.exchange != "" {
		return nil, errAgain
	}
	g.count.rejoined.Add(1)
	return c, nil
}

// stands reports whether t would be sampled after the same tokens by what is on
// record now.
func (a *attempt) stands(t *trip) bool {
	if t.source != nil {
		return true
	}
	form := a.canonicalize(t.question)
	h, err := a.history(t.question, form)
	if err != nil || form.key != t.form.key || !slices.Equal(h.prompt, t.history.prompt) {
		return false
	}
	t.form, t.history = form, h
	return true
}

func (g *Gateway) append(ctx context.Context, a *attempt, t *trip, record *trace.Exchange) (*call, error) {
	c := &call{
		id: record.ID, stem: t.flight.stem, api: t.order.request.API, seq: len(a.calls), key: record.Key, occurrence: record.Occurrence,
		exchange: record.Exchange, prompt: record.Prompt, completion: record.Completion, logprobs: record.Logprobs, finish: record.Finish,
		created: t.flight.created,
	}
	record.Seq = c.seq
	if t.source != nil {
		record.Parent = a.extended(record.Prompt)
	} else {
		record.Parent, record.Divergence = t.history.parent, g.divergence(ctx, a, t.form)
	}
	c.interpret(t.question)
	record.ParseError = c.problem
	if t.source == nil {
		var err error
		if record.Response, err = t.order.encode(c); err != nil {
			return nil, err
		}
	}
	c.response = record.Response
	err := g.config.Journal.AppendCall(ctx, record)
	switch {
	case errors.Is(err, trace.ErrConflict):
		return nil, err
	case errors.Is(err, trace.ErrFenced):
		a.fence()
		return nil, fenced(err)
	case err != nil:
		// It may have been committed all the same.
		a.loaded = false
		g.config.Log.Warn("call not recorded", zap.Stringer("rollout", a.address), zap.String("call", record.ID), zap.Error(err))
		return nil, fault(fmt.Errorf("append call %s: %w", record.ID, err))
	}
	t.committed = true
	if record.Drift {
		g.count.drifted.Add(1)
	}
	a.diverged = a.diverged || record.Divergence != nil
	a.keep(c)
	a.tree.grow(c, t.form)
	return c, nil
}
