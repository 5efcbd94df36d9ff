package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/trace"
)

// recordLimit is how long a commit may take before the call counts as not
// recorded.
const recordLimit = 30 * time.Second

// question is a chat request on its way to a reply.
type question struct {
	request *chatRequest
	body    []byte
	agent   string
	again   bool // the client says that it asked the same before
}

// chat answers a model call of an attempt.
func (g *Gateway) chat(w http.ResponseWriter, r *http.Request, a *attempt) error {
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	request, err := decodeChat(body)
	if err != nil {
		return err
	}
	c, err := g.answer(r.Context(), a, question{request, body, r.PathValue("agent"), asksAgain(r)})
	if err != nil {
		return err
	}
	w.Header().Set("X-Request-Id", c.id)
	// Writing to a client that left can succeed, and one that has its reply may
	// leave at once: only who was there before counts.
	there := r.Context().Err() == nil
	err = write(w, http.StatusOK, c.response)
	a.mu.Lock()
	defer a.mu.Unlock()
	c.writers--
	c.delivered = c.delivered || there && err == nil
	return nil
}

// asksAgain reports whether the request is a repetition by an SDK or by the
// forwarder in the agent's worker.
func asksAgain(r *http.Request) bool {
	for _, name := range []string{"X-Fulgurite-Retry", "X-Stainless-Retry-Count"} {
		if n, err := strconv.Atoi(r.Header.Get(name)); err == nil && n > 0 {
			return true
		}
	}
	return false
}

// answer returns the recorded call that answers q, its writers counting the
// caller.
func (g *Gateway) answer(ctx context.Context, a *attempt, q question) (*call, error) {
	for {
		a.mu.Lock()
		if err := a.ready(ctx, g); err != nil {
			a.mu.Unlock()
			return nil, err
		}
		form := a.canonicalize(q.request, q.agent)
		repeats := a.repeatsOf(form.key)
		if f := repeats.pending(q.again); f != nil {
			if c, answered, err := a.join(ctx, f); answered {
				return c, err
			}
			continue
		}
		if c := repeats.recorded(q.again); c != nil {
			c.writers++
			a.mu.Unlock()
			return c, nil
		}
		t, err := a.takeOff(q, form)
		if err != nil {
			a.mu.Unlock()
			return nil, err
		}
		// Others may join, so the call outlives the request that began it.
		flying, cancel := context.WithCancel(context.WithoutCancel(ctx))
		t.flight.cancel = cancel
		stop := a.watch(ctx, t.flight)
		a.mu.Unlock()
		g.fly(flying, a, t)
		stop()
		cancel()
		if t.flight.orphaned {
			return nil, fmt.Errorf("wait for call: %w", ctx.Err())
		}
		return t.flight.call, t.flight.err
	}
}

// trip is what a flight needs.
type trip struct {
	question
	form      canonical
	flight    *flight
	prompt    []int32
	parent    int
	seed      uint64
	maxTokens int
}

// takeOff begins a call, or refuses it for the attempt's limits. The caller
// holds mu.
func (a *attempt) takeOff(q question, form canonical) (*trip, error) {
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
	var err error
	if t.prompt, t.parent, err = a.prompt(form, q.request.tools); err != nil {
		return nil, err
	}
	t.flight = a.repeatsOf(form.key).begin()
	t.seed = seedOf(terms.RunSeed, a.address.RolloutID, form.key, t.flight.occurrence)
	a.flying++
	return t, nil
}

// fly samples and records, and ends the flight whatever happens.
func (g *Gateway) fly(ctx context.Context, a *attempt, t *trip) {
	terms := a.begun.Terms
	record := &trace.Call{
		Address: a.address, Parent: t.parent, Agent: t.agent, Policy: terms.Policy, Version: terms.Version,
		Key: t.form.key, Occurrence: t.flight.occurrence, Prompt: t.prompt, Seed: t.seed, Temperature: terms.Temperature,
		ID: callID(idOf(t.seed)), Request: t.body, Started: g.config.Now().UTC(),
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
	record.Duration = g.config.Now().Sub(record.Started)
	record.Completion, record.Logprobs, record.Finish, record.Weights = sampled.Tokens, sampled.Logprobs, sampled.Finish, weights
	a.mu.Lock()
	locked = true
	// What was sampled is recorded even if nobody waits for it any more.
	c, err = g.record(context.WithoutCancel(ctx), a, t, record)
}

// samplingFailure tells a prompt that can't be answered from all else that keeps
// a sampler from answering, which is a fault of ours.
func samplingFailure(err error, v model.VersionID) error {
	if errors.Is(err, model.ErrPromptTooLong) {
		return err
	}
	return fault(fmt.Errorf("sample %s: %w", v, err))
}

// record commits a call and adds it to the attempt. The caller holds mu.
func (g *Gateway) record(ctx context.Context, a *attempt, t *trip, record *trace.Call) (*call, error) {
	ctx, cancel := context.WithTimeout(ctx, recordLimit)
	defer cancel()
	if err := a.ready(ctx, g); err != nil {
		return nil, err
	}
	c := &call{
		id: record.ID, seq: len(a.calls), occurrence: record.Occurrence,
		prompt: record.Prompt, completion: record.Completion,
	}
	record.Seq = c.seq
	c.reply, record.ParseError = a.codec.Parse(record.Completion, t.request.usable(), toolCallIDs(idOf(t.seed)))
	var err error
	if c.response, err = respond(a.codec, t.request, record, c.reply); err != nil {
		return nil, fault(err)
	}
	record.Response = c.response
	err = g.config.Journal.AppendCall(ctx, record)
	switch {
	case errors.Is(err, trace.ErrFenced):
		a.fence()
		return nil, fenced(err)
	case err != nil:
		// It may have been committed all the same.
		a.loaded = false
		g.config.Log.Warn("call not recorded", zap.Stringer("rollout", a.address), zap.String("call", record.ID), zap.Error(err))
		return nil, fault(fmt.Errorf("append call %s: %w", record.ID, err))
	}
	a.grow(c, t.form, record.Key)
	return c, nil
}
