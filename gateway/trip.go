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
	form      canonical
	flight    *flight
	source    *trace.Call // what an earlier attempt sampled; else what follows decides
	prompt    []int32
	parent    int
	seed      uint64
	maxTokens int
	committed bool
}

// takeOff begins a call, or refuses it for the attempt's limits. The caller
// holds mu.
func (a *attempt) takeOff(q *question, form canonical) (*trip, error) {
	terms := a.begun.Terms
	if terms.MaxCalls > 0 && len(a.calls)+a.flying >= terms.MaxCalls {
		return nil, &failure{status: http.StatusBadRequest, code: "call_limit", message: fmt.Sprintf("the attempt has made all of its %d calls", terms.MaxCalls)}
	}
	t := &trip{question: q, form: form, maxTokens: a.replyLimit(q.request)}
	if terms.TokenBudget > 0 {
		left := terms.TokenBudget - a.tokens
		if left <= 0 {
			return nil, &failure{status: http.StatusBadRequest, code: "token_limit", message: fmt.Sprintf("the attempt has sampled all of its %d tokens", terms.TokenBudget)}
		}
		t.maxTokens = min(t.maxTokens, left)
	}
	repeats := a.repeatsOf(form.key)
	occurrence := repeats.free()
	if t.source = a.earlier.find(form.key, occurrence); t.source == nil {
		var err error
		if t.prompt, t.parent, err = a.prompt(form, q.request.tools); err != nil {
			return nil, err
		}
	}
	t.flight = repeats.begin(occurrence, q.exchange)
	t.seed = seedOf(terms.RunSeed, a.address.RolloutID, form.key, occurrence)
	a.flying++
	return t, nil
}

// fly samples and records, and ends the flight whatever happens.
func (g *Gateway) fly(ctx context.Context, a *attempt, t *trip) {
	terms := a.begun.Terms
	record := &trace.Call{
		Address: a.address, Parent: t.parent, Agent: t.agent, Policy: terms.Policy, Version: terms.Version,
		Key: t.form.key, Occurrence: t.flight.occurrence, Prompt: t.prompt, Seed: t.seed, Temperature: terms.Temperature,
		ID: callID(idOf(t.seed)), Request: t.body, Exchange: t.exchange, Started: g.config.Now().UTC(),
	}
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
	version := model.VersionID{Run: a.address.Run, Policy: terms.Policy, Number: terms.Version}
	sampled, weights, sampling := g.config.Sampler.Sample(ctx, version, model.DecodeRequest{
		Prompt: t.prompt, MaxTokens: t.maxTokens, Temperature: terms.Temperature, Stop: a.codec.Stop(), Seed: t.seed,
	})
	if sampling == nil && len(sampled.Logprobs) != len(sampled.Tokens) {
		sampling = fmt.Errorf("%d log-probabilities for %d tokens", len(sampled.Logprobs), len(sampled.Tokens))
	}
	if sampling != nil {
		err = samplingFailure(sampling, version)
		return
	}
	g.count.sampled.Add(1)
	defer func() {
		if !t.committed {
			g.count.unrecorded.Add(1)
		}
	}()
	record.Duration = g.config.Now().Sub(record.Started)
	record.Completion, record.Logprobs, record.Finish, record.Weights = sampled.Tokens, sampled.Logprobs, sampled.Finish, weights
	a.mu.Lock()
	locked = true
	// What was sampled is recorded even if nobody waits for it any more.
	c, err = g.record(ctx, a, t, record)
}

// samplingFailure tells a prompt that can't be answered from all else that keeps
// a sampler from answering, which is a fault of ours.
func samplingFailure(err error, v model.VersionID) error {
	if errors.Is(err, model.ErrPromptTooLong) {
		return err
	}
	return fault(fmt.Errorf("sample %s: %w", v, err))
}

// record commits a call and adds it to the attempt. Where another gateway
// recorded calls meanwhile, it is numbered anew, and given up if the attempt has
// its like or should have sampled it after other tokens. The caller holds mu.
func (g *Gateway) record(ctx context.Context, a *attempt, t *trip, record *trace.Call) (*call, error) {
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
	form := a.canonicalize(t.request, t.agent)
	prompt, parent, err := a.prompt(form, t.request.tools)
	if err != nil || form.key != t.form.key || !slices.Equal(prompt, t.prompt) {
		return false
	}
	t.form, t.parent = form, parent
	return true
}

func (g *Gateway) append(ctx context.Context, a *attempt, t *trip, record *trace.Call) (*call, error) {
	c := &call{
		id: record.ID, seq: len(a.calls), key: record.Key, occurrence: record.Occurrence, exchange: record.Exchange,
		prompt: record.Prompt, completion: record.Completion,
	}
	record.Seq, record.Parent = c.seq, t.parent
	if t.source != nil {
		record.Parent = a.extended(record.Prompt)
	} else {
		record.Divergence = g.divergence(ctx, a, t.form)
	}
	c.reply, record.ParseError = a.codec.Parse(record.Completion, t.request.usable(), toolCallIDs(idOf(t.seed)))
	if t.source == nil {
		var err error
		if record.Response, err = respond(a.codec, t.request, record, c.reply); err != nil {
			return nil, fault(err)
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
	a.diverged = a.diverged || record.Divergence != nil
	a.grow(c, t.form)
	return c, nil
}
