package native

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/native/kvcache"
)

// errAbandoned marks a request whose caller has gone.
var errAbandoned = errors.New("abandoned")

// request is one completion in progress. Until done is closed, only the owner of the
// batch may touch it and, during a step, the thread that computes it.
type request struct {
	model.DecodeRequest
	limit    int     // most tokens to sample
	scale    float32 // of the logits, for log-probabilities and, unless greedy, for sampling
	cached   int     // tokens whose keys and values are in pages
	feed     int     // tokens that the present step adds
	sampling bool    // the present step samples a token
	pages    []*kvcache.Page
	sought   bool     // whether other requests' pages were searched for a prefix of the prompt
	leader   *request // the request waits until leader has computed the first shared tokens of the prompt; nil if it does not wait
	shared   int
	given    []int32 // tokens to use instead of sampling; either none, or limit of them
	// samples passes each token to the caller that waits for the request. It has room for
	// all of them. It is nil if the caller does not listen.
	samples chan sample

	completion model.Completion
	err        error
	done       chan struct{}
	abandoned  atomic.Bool
}

// sample is a token that was just sampled.
type sample struct {
	token   int32
	logprob float32
}

func (l *layout) newRequest(r model.DecodeRequest) (*request, error) {
	if err := checkTokens(l.Architecture, r.Prompt); err != nil {
		return nil, fmt.Errorf("prompt: %w", err)
	}
	room := l.MaxPositions - len(r.Prompt)
	if room < 1 {
		return nil, &model.PromptTooLong{Tokens: len(r.Prompt), Positions: l.MaxPositions}
	}
	if r.MaxTokens < 1 {
		return nil, fmt.Errorf("%w: at most %d tokens asked for, want at least 1", ErrRow, r.MaxTokens)
	}
	if nucleus := r.TopP >= 0 && r.TopP <= 1; !nucleus { // also refuses NaN
		return nil, fmt.Errorf("%w: top_p is %v, want 0 to 1", ErrRow, r.TopP)
	}
	scale, err := inverseTemperature(r.Temperature)
	if err != nil {
		return nil, err
	}
	limit := min(r.MaxTokens, room)
	// The caller may change its slices when Decode has returned because ctx ended.
	r.Prompt, r.Stop = slices.Clone(r.Prompt), slices.Clone(r.Stop)
	q := &request{
		DecodeRequest: r, limit: limit, scale: scale, done: make(chan struct{}),
		completion: model.Completion{Tokens: make([]int32, 0, limit), Logprobs: make([]float32, 0, limit)},
	}
	if r.Emit != nil {
		q.samples = make(chan sample, limit)
	}
	return q, nil
}

// remaining returns the number of tokens that are not yet in pages: the rest of the
// prompt, or the token sampled last.
func (q *request) remaining() int { return len(q.Prompt) + len(q.completion.Tokens) - q.cached }

func (q *request) token(position int) int32 {
	if position < len(q.Prompt) {
		return q.Prompt[position]
	}
	return q.completion.Tokens[position-len(q.Prompt)]
}

// hasNucleus reports whether only the likeliest tokens may be drawn.
func (q *request) hasNucleus() bool {
	return q.TopP > 0 && q.TopP < 1 && q.Temperature > 0 && q.given == nil
}

// accept appends a sampled token; forced says that it had no alternative.
func (q *request) accept(token int32, logprob float32, forced bool) {
	c := &q.completion
	if forced && c.Forced == nil {
		c.Forced = make([]bool, len(c.Tokens), q.limit)
	}
	if c.Forced != nil {
		c.Forced = append(c.Forced, forced)
	}
	c.Tokens, c.Logprobs = append(c.Tokens, token), append(c.Logprobs, logprob)
	done := q.Constraint != nil && q.Constraint.Accept(token)
	if q.samples != nil {
		q.samples <- sample{token, logprob}
	}
	switch {
	case done || slices.Contains(q.Stop, token):
		c.Finish = "stop"
	case len(c.Tokens) == q.limit:
		c.Finish = "length"
	}
}

func (q *request) finished() bool { return q.err != nil || q.completion.Finish != "" }
