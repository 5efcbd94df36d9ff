package native

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/model"
)

const (
	// idlePages is how many numbers the free pages of an idle decoder may hold: 64 MiB.
	idlePages = 16 << 20
	// keptIdle is for how long a decoder without requests keeps what it computed: the
	// next turns of its dialogs may be on the way.
	keptIdle = 10 * time.Second
)

var _ model.Scorer = (*decoder)(nil)

// decoder implements model.Decoder with continuous batching: one goroutine owns
// the batch and runs it step by step; requests join and leave between steps.
type decoder struct {
	*batch
	mu      sync.Mutex
	waiting []*request // in the order of arrival
	closed  bool
	changed chan struct{} // holds a token if waiting or closed changed
	gone    chan struct{} // closed when the owner has returned
}

func (e *Engine) newDecoder(c model.Checkpoint) (*decoder, error) {
	d, err := e.prepareDecoder(c)
	if err != nil {
		return nil, err
	}
	go d.own()
	return d, nil
}

// prepareDecoder returns a decoder whose goroutine has not started.
func (e *Engine) prepareDecoder(c model.Checkpoint) (*decoder, error) {
	p, err := e.newPass(c)
	if err != nil {
		return nil, err
	}
	return &decoder{
		batch:   newBatch(p, e.threads, e.maxBatch),
		changed: make(chan struct{}, 1), gone: make(chan struct{}),
	}, nil
}

// Decode implements model.Decoder. When ctx ends it returns at once; the request
// leaves the batch before the next step, and until then its constraint is in use.
func (d *decoder) Decode(ctx context.Context, r model.DecodeRequest) (model.Completion, error) {
	q, err := d.newRequest(r)
	if err != nil {
		return model.Completion{}, fmt.Errorf("decode: %w", err)
	}
	if err := d.answer(ctx, q); err != nil {
		return model.Completion{}, fmt.Errorf("decode: %w", err)
	}
	return q.completion, nil
}

// Score implements model.Scorer: a request whose tokens are given.
func (d *decoder) Score(ctx context.Context, prompt, tokens []int32) ([]float32, error) {
	if err := checkTokens(d.Architecture, tokens); err != nil {
		return nil, fmt.Errorf("score: %w", err)
	}
	q, err := d.newRequest(model.DecodeRequest{Prompt: prompt, MaxTokens: len(tokens)})
	if err == nil && q.limit < len(tokens) {
		err = fmt.Errorf("%w: %d tokens and %d to score, the model has %d positions", model.ErrPromptTooLong, len(prompt), len(tokens), d.MaxPositions)
	}
	if err != nil {
		return nil, fmt.Errorf("score: %w", err)
	}
	q.given = slices.Clone(tokens)
	if err := d.answer(ctx, q); err != nil {
		return nil, fmt.Errorf("score: %w", err)
	}
	return q.completion.Logprobs, nil
}

// answer queues q for the owner of the batch and waits until q is done. The caller's
// goroutine emits the samples here, so they never hold up the batch, and none is emitted
// after the caller has its answer.
func (d *decoder) answer(ctx context.Context, q *request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !d.queue(q) {
		return ErrClosed
	}
	defer q.abandoned.Store(true) // also if Emit panics; it has no effect on a request that is done
	for {
		select {
		case s := <-q.samples:
			q.Emit(s.token, s.logprob)
		case <-q.done:
			for len(q.samples) > 0 {
				s := <-q.samples
				q.Emit(s.token, s.logprob)
			}
			return q.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close ends the owner and its threads. Requests under way return ErrClosed.
func (d *decoder) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.notify()
	<-d.gone
}

func (d *decoder) queue(q *request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.waiting = append(d.waiting, q)
	d.notify()
	return true
}

func (d *decoder) notify() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// own runs the batch until Close.
func (d *decoder) own() {
	defer close(d.gone)
	defer d.free()
	defer d.threadPool.close()
	for {
		if len(d.running) == 0 {
			d.rest()
		}
		if d.admit() {
			d.fail(ErrClosed)
			return
		}
		d.dropAbandoned()
		if len(d.running) > 0 {
			d.step()
		}
	}
}

// rest waits for requests. If none arrives within keptIdle, it drops what is kept of
// earlier ones.
func (d *decoder) rest() {
	d.kept.Shrink()
	d.pages.Trim(idlePages)
	if !d.kept.IsEmpty() {
		timer := time.NewTimer(keptIdle)
		defer timer.Stop()
		select {
		case <-d.changed:
			return
		case <-timer.C:
		}
		d.kept.Clear()
		d.pages.Trim(idlePages)
	}
	<-d.changed
}

// admit moves waiting requests into the batch. closed reports whether the decoder is
// closed.
func (d *decoder) admit() (closed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for n < len(d.waiting) && (len(d.running) < d.capacity || d.closed) {
		d.running = append(d.running, d.waiting[n])
		n++
	}
	if n > 0 {
		d.waiting = append(d.waiting[:0], d.waiting[n:]...)
		clear(d.waiting[len(d.waiting) : len(d.waiting)+n]) // drop references to the moved requests
	}
	return d.closed
}
