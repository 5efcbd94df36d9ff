package gomlx

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/fulgurite/fulgurite/model"
)

// request is one completion in progress.
type request struct {
	model.DecodeRequest
	ctx     context.Context
	limit   int     // most tokens to sample
	pending []int32 // tokens not yet fed
	given   []int32 // tokens to use instead of sampling; either none, or limit of them
	fed     int     // tokens in the cache
	done    model.Completion
	answer  chan answer // buffered, so that answering never waits
	// samples passes each token to the caller that waits for the request. It has room for
	// all of them. It is nil if the caller does not listen.
	samples chan sample
}

type answer struct {
	completion model.Completion
	err        error
}

// sample is a token that was just sampled.
type sample struct {
	token   int32
	logprob float32
	forced  bool // it had no alternative
}

func newRequest(ctx context.Context, a model.Architecture, r model.DecodeRequest, given []int32) *request {
	q := &request{
		DecodeRequest: r, ctx: ctx, limit: min(r.MaxTokens, a.MaxPositions-len(r.Prompt)),
		pending: slices.Clone(r.Prompt), given: given, answer: make(chan answer, 1),
	}
	if r.Emit != nil {
		q.samples = make(chan sample, q.limit)
	}
	return q
}

// restricted reports whether the request may have to choose among only some tokens, for
// which it needs its logits.
func (r *request) restricted() bool { return r.Constraint != nil || r.hasNucleus() }

func (r *request) hasNucleus() bool {
	return r.TopP > 0 && r.TopP < 1 && r.Temperature > 0 && r.given == nil
}

// feeds records that up to c tokens were fed. It reports whether no token is left to
// feed, so that the next one is sampled.
func (r *request) feeds(c int) bool {
	n := min(c, len(r.pending))
	r.fed += n
	r.pending = r.pending[n:]
	return len(r.pending) == 0
}

// choose samples among the tokens that constraint and nucleus allow. logits are not yet
// divided by the temperature; free is the token that was sampled without constraint and
// nucleus.
func (r *request) choose(logits []float32, free sample) (sample, error) {
	tokens, whole := make([]int32, 0, len(logits)), true
	if r.Constraint != nil {
		set := model.NewTokenSet(len(logits))
		if whole = !r.Constraint.Allowed(set); !whole {
			tokens = set.AppendTokens(tokens, len(logits))
		}
	}
	switch {
	case whole && !r.hasNucleus():
		return free, nil
	case whole:
		for token := range logits {
			tokens = append(tokens, int32(token))
		}
	case len(tokens) == 0:
		return sample{}, fmt.Errorf("%w: it allows no token of the vocabulary after %d tokens of the completion", model.ErrForm, len(r.done.Tokens))
	}
	scale := float32(1)
	if r.Temperature > 0 {
		scale = float32(1 / r.Temperature)
	}
	if r.hasNucleus() {
		chances := make([]float32, len(tokens))
		for i, l := range logSoftmax(logits, tokens, scale) {
			chances[i] = float32(math.Exp(l))
		}
		tokens = model.Nucleus(tokens, chances, r.TopP)
	}
	logprobs, some, at := logSoftmax(logits, tokens, scale), make([]float32, len(tokens)), 0
	for i, token := range tokens {
		if some[i] = logits[token]; some[i] > some[at] {
			at = i
		}
	}
	if r.Temperature > 0 {
		at = model.GumbelChooseAmong(tokens, some, scale, r.Seed, len(r.done.Tokens))
	}
	return sample{tokens[at], float32(logprobs[at]), len(tokens) == 1}, nil
}

// logSoftmax returns the log-probabilities of the soft-max over tokens alone.
func logSoftmax(logits []float32, tokens []int32, scale float32) []float64 {
	out, most, sum := make([]float64, len(tokens)), math.Inf(-1), 0.0
	for i, token := range tokens {
		out[i] = float64(scale) * float64(logits[token])
		most = max(most, out[i])
	}
	for _, x := range out {
		sum += math.Exp(x - most)
	}
	for i := range out {
		out[i] -= most + math.Log(sum)
	}
	return out
}

// took appends a sampled token. It reports whether the completion is done.
func (r *request) took(s sample) bool {
	c := &r.done
	if s.forced && c.Forced == nil {
		c.Forced = make([]bool, len(c.Tokens), r.limit)
	}
	if c.Forced != nil {
		c.Forced = append(c.Forced, s.forced)
	}
	c.Tokens, c.Logprobs = append(c.Tokens, s.token), append(c.Logprobs, s.logprob)
	r.pending = []int32{s.token}
	end := r.Constraint != nil && r.Constraint.Accept(s.token)
	if r.samples != nil {
		r.samples <- s
	}
	switch {
	case end || slices.Contains(r.Stop, s.token):
		c.Finish = "stop"
	case len(c.Tokens) == r.limit:
		c.Finish = "length"
	default:
		return false
	}
	return true
}

// wait returns the answer. The caller's goroutine emits the samples here, so they never
// hold up the batch, and none is emitted after the caller has its answer.
func (r *request) wait() (model.Completion, error) {
	for {
		select {
		case s := <-r.samples:
			r.Emit(s.token, s.logprob)
		case a := <-r.answer:
			for len(r.samples) > 0 {
				s := <-r.samples
				r.Emit(s.token, s.logprob)
			}
			return a.completion, a.err
		case <-r.ctx.Done(): // the goroutine sees it too, and frees the row
			return model.Completion{}, r.ctx.Err()
		}
	}
}
