package decode

import (
	"context"
	"fmt"
	"slices"

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
