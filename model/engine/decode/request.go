package decode

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fulgurite/fulgurite/model"
)

// ErrClosed is returned by a decoder that was closed, also to requests that were under way.
var ErrClosed = errors.New("decoder is closed")

// Request is one completion in progress. Until End, only the owner of the batch may touch
// it.
type Request struct {
	model.DecodeRequest
	Limit      int     // most tokens to sample
	Given      []int32 // tokens to use instead of sampling: none, or Limit of them
	Completion model.Completion
	Err        error // why there is no completion

	// samples passes each token to the caller, who waits. It has room for all of them. It
	// is nil if the caller does not listen.
	samples   chan sample
	arrived   time.Time
	joined    time.Time // zero if the owner does not say
	first     time.Time // when the first token was sampled
	ended     time.Time
	shared    int // tokens of the prompt that were not computed
	done      chan struct{}
	abandoned atomic.Bool
}

// sample is a token that was just sampled.
type sample struct {
	token   int32
	logprob float32
}

// NewRequest checks r and returns it without a completion.
func NewRequest(a model.Architecture, r model.DecodeRequest) (*Request, error) {
	if err := r.Check(a); err != nil {
		return nil, err
	}
	limit := min(r.MaxTokens, a.MaxPositions-len(r.Prompt))
	// The caller may change its slices when Decode has returned because ctx ended.
	r.Prompt, r.Stop = slices.Clone(r.Prompt), slices.Clone(r.Stop)
	q := &Request{
		DecodeRequest: r, Limit: limit, done: make(chan struct{}), arrived: time.Now(),
		Completion: model.Completion{Tokens: make([]int32, 0, limit), Logprobs: make([]float32, 0, limit)},
	}
	if r.Emit != nil {
		q.samples = make(chan sample, limit)
	}
	return q, nil
}

// HasNucleus reports whether only the most likely tokens may be sampled.
func (q *Request) HasNucleus() bool {
	return q.TopP > 0 && q.TopP < 1 && q.Temperature > 0 && q.Given == nil
}

// Join says that the request is in the batch from now on.
func (q *Request) Join() { q.joined = time.Now() }

// Share says that the first n tokens of the prompt need not be computed.
func (q *Request) Share(n int) { q.shared = n }

// Accept appends a sampled token; forced says that it had no alternative.
func (q *Request) Accept(token int32, logprob float32, forced bool) {
	c := &q.Completion
	if len(c.Tokens) == 0 {
		q.first = time.Now()
	}
	if forced && c.Forced == nil {
		c.Forced = make([]bool, len(c.Tokens), q.Limit)
	}
	if c.Forced != nil {
		c.Forced = append(c.Forced, forced)
	}
	c.Tokens, c.Logprobs = append(c.Tokens, token), append(c.Logprobs, logprob)
	complete := q.Constraint != nil && q.Constraint.Accept(token)
	if q.samples != nil {
		q.samples <- sample{token, logprob}
	}
	switch {
	case complete || slices.Contains(q.Stop, token):
		c.Finish = "stop"
	case len(c.Tokens) == q.Limit:
		c.Finish = "length"
	}
}

// Finished reports whether the completion is complete, or impossible.
func (q *Request) Finished() bool { return q.Err != nil || q.Completion.Finish != "" }

// Abandon says that the caller no longer waits. It has no effect on a request that has
// ended.
func (q *Request) Abandon() { q.abandoned.Store(true) }

// IsAbandoned reports whether the caller no longer waits.
func (q *Request) IsAbandoned() bool { return q.abandoned.Load() }

// End gives the caller the completion, or Err. The owner then no longer touches q.
func (q *Request) End() {
	q.ended = time.Now()
	close(q.done)
}

// wait waits until q has ended. The caller's goroutine emits the samples here, so they
// never hold up the batch, and none is emitted after the caller has its answer.
func (q *Request) wait(ctx context.Context) error {
	defer q.Abandon() // also if Emit panics
	for {
		select {
		case s := <-q.samples:
			q.Emit(s.token, s.logprob)
		case <-q.done:
			for len(q.samples) > 0 {
				s := <-q.samples
				q.Emit(s.token, s.logprob)
			}
			q.setTiming()
			return q.Err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// setTiming gives the caller the times of a request that has ended with a completion.
func (q *Request) setTiming() {
	if q.Timing == nil || q.Err != nil || q.first.IsZero() {
		return
	}
	joined := q.joined
	if joined.IsZero() {
		joined = q.arrived
	}
	*q.Timing = model.Timing{Queued: joined.Sub(q.arrived), Prefill: q.first.Sub(joined), Decode: q.ended.Sub(q.first), Shared: q.shared}
}
