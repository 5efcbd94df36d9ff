package gomlx

import (
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/decode"
)

// request is one completion in progress.
type request struct {
	*decode.Request
	pending []int32 // tokens not yet fed
	fed     int     // tokens in the cache
}

func newRequest(q *decode.Request) *request { return &request{Request: q, pending: q.Prompt} }

// restricted reports whether the request may have to choose among only some tokens, for
// which it needs its logits.
func (r *request) restricted() bool { return r.Constraint != nil || r.HasNucleus() }

// feeds records that up to c tokens were fed. It reports whether no token is left to
// feed, so that the next one is sampled.
func (r *request) feeds(c int) bool {
	n := min(c, len(r.pending))
	r.fed += n
	r.pending = r.pending[n:]
	return len(r.pending) == 0
}

// choose samples among the tokens that constraint and nucleus allow. logits are not yet
// divided by the temperature. token and logprob are what was sampled without constraint and
// nucleus; they stay if all tokens are allowed. forced says that there was no alternative.
func (r *request) choose(logits []float32, token int32, logprob float32) (chosen int32, _ float32, forced bool, err error) {
	tokens, whole := make([]int32, 0, len(logits)), true
	if r.Constraint != nil {
		set := model.NewTokenSet(len(logits))
		if whole = !r.Constraint.Allowed(set); !whole {
			tokens = set.AppendTokens(tokens, len(logits))
		}
	}
	switch {
	case whole && !r.HasNucleus():
		return token, logprob, false, nil
	case whole:
		for token, logit := range logits {
			if logit != masked { // an id without a token
				tokens = append(tokens, int32(token))
			}
		}
	case len(tokens) == 0:
		return 0, 0, false, fmt.Errorf("%w: it allows no token of the vocabulary after %d tokens of the completion", model.ErrForm, len(r.Completion.Tokens))
	}
	scale := float32(1)
	if r.Temperature > 0 {
		scale = float32(1 / r.Temperature)
	}
	if r.HasNucleus() {
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
		at = model.GumbelChooseAmong(tokens, some, scale, r.Seed, len(r.Completion.Tokens))
	}
	return tokens[at], float32(logprobs[at]), len(tokens) == 1, nil
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
