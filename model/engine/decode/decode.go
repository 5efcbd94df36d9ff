// Package decode has what the decoders of all engines share. A [Front] checks requests,
// queues them and waits for their completions: it is model.Decoder and model.Scorer for
// callers. One goroutine of the engine owns the batch. It takes requests from the [Queue]
// between two steps, samples, gives each [Request] its tokens, and ends it.
//
// The package computes nothing with a model.
package decode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fulgurite/fulgurite/model"
)

var _ model.Scorer = (*Front[any])(nil)

// Front is a decoder as its callers see it. R is the engine's own kind of request.
type Front[R any] struct {
	*Queue[R]
	architecture model.Architecture
	wrap         func(*Request) R
	owned        chan struct{} // closed when the owner has returned
}

// NewFront returns a front for the model with architecture a. wrap makes a request the
// engine's own. The engine then runs the owner of the batch with Own.
func NewFront[R any](a model.Architecture, wrap func(*Request) R) *Front[R] {
	return &Front[R]{Queue: NewQueue[R](), architecture: a, wrap: wrap, owned: make(chan struct{})}
}

// Own runs the owner of the batch in a goroutine. owner returns after Take said that the
// queue is closed, and has then ended all requests.
func (f *Front[R]) Own(owner func()) {
	go func() {
		defer close(f.owned)
		owner()
	}()
}

// Decode implements model.Decoder. When ctx ends it returns at once. The request leaves the
// batch before the owner's next step; until then its constraint is in use.
func (f *Front[R]) Decode(ctx context.Context, r model.DecodeRequest) (model.Completion, error) {
	q, err := NewRequest(f.architecture, r)
	if err == nil {
		err = f.answer(ctx, q)
	}
	if err != nil {
		return model.Completion{}, fmt.Errorf("decode: %w", err)
	}
	return q.Completion, nil
}

// Score implements model.Scorer: a request whose tokens are given.
func (f *Front[R]) Score(ctx context.Context, prompt, tokens []int32) ([]float32, error) {
	if err := f.architecture.CheckTokens(tokens); err != nil {
		return nil, fmt.Errorf("score: %w", err)
	}
	q, err := NewRequest(f.architecture, model.DecodeRequest{Prompt: prompt, MaxTokens: len(tokens)})
	if err == nil && q.Limit < len(tokens) {
		err = fmt.Errorf("%w: %d tokens and %d to score, the model has %d positions", model.ErrPromptTooLong, len(prompt), len(tokens), f.architecture.MaxPositions)
	}
	if err == nil {
		q.Given = slices.Clone(tokens)
		err = f.answer(ctx, q)
	}
	if err != nil {
		return nil, fmt.Errorf("score: %w", err)
	}
	return q.Completion.Logprobs, nil
}

func (f *Front[R]) answer(ctx context.Context, q *Request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !f.add(f.wrap(q)) {
		return ErrClosed
	}
	return q.wait(ctx)
}

// Close ends the owner. Requests under way return ErrClosed.
func (f *Front[R]) Close() {
	f.Queue.Close()
	<-f.owned
}

// Queue holds the requests that wait for the owner of a batch, in the order of arrival. R
// is the engine's own kind of request.
type Queue[R any] struct {
	mu      sync.Mutex
	waiting []R
	closed  bool
	changed chan struct{} // holds a value if requests wait or closed was set
}

// NewQueue returns an empty queue.
func NewQueue[R any]() *Queue[R] { return &Queue[R]{changed: make(chan struct{}, 1)} }

// add appends r. It returns false if the queue is closed.
func (q *Queue[R]) add(r R) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.waiting = append(q.waiting, r)
	q.notify()
	return true
}

// Take moves up to room requests to the end of batch. closed reports whether the queue is
// closed; Take then moves all requests, so that the owner can end them.
func (q *Queue[R]) Take(batch []R, room int) (taken []R, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.waiting)
	if !q.closed {
		n = min(n, max(0, room))
	}
	batch = append(batch, q.waiting[:n]...)
	q.waiting = slices.Delete(q.waiting, 0, n)
	if len(q.waiting) > 0 {
		q.notify()
	}
	return batch, q.closed
}

// Return puts requests that were taken back in front of the others.
func (q *Queue[R]) Return(requests []R) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.Concat(requests, q.waiting)
	q.notify()
}

// Changed has a value while requests wait, and once the queue is closed. The owner waits
// there when it has nothing to do. It may find that nothing waits.
func (q *Queue[R]) Changed() <-chan struct{} { return q.changed }

// Close has every later request refused.
func (q *Queue[R]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.notify()
}

func (q *Queue[R]) notify() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

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
