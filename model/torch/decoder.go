package torch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fulgurite/fulgurite/model"
)

const (
	// burst is the largest number of tokens of each sequence that the program samples
	// before requests may join and leave and the engine's trainers may use the program.
	burst = 16
	// burstSeconds ends a burst earlier. It is about how long a joining request waits, or
	// one that streams.
	burstSeconds = 0.1
)

// ErrClosed is returned by a decoder that was closed, also to requests that were under way.
var ErrClosed = errors.New("decoder is closed")

var (
	_ model.Decoder = (*decoder)(nil)
	_ model.Scorer  = (*decoder)(nil)
)

// decoder implements model.Decoder. One goroutine owns the batch. It asks the program for
// one burst of tokens at a time; requests join and leave between bursts.
type decoder struct {
	held *trainer // the version's weights, without moments
	most int      // sequences at once

	mu      sync.Mutex
	waiting []*decodeRequest // in the order of arrival
	closed  bool
	changed chan struct{} // holds a token if waiting or closed changed
	gone    chan struct{} // closed when the owner has returned

	// The goroutine owns the following fields.
	running []*decodeRequest
	left    []int32 // ids of sequences that the program still has to drop
	ids     int32
}

func newDecoder(held *trainer, most int) *decoder {
	d := &decoder{held: held, most: most, changed: make(chan struct{}, 1), gone: make(chan struct{})}
	go d.own()
	return d
}

// Decode implements model.Decoder. When ctx ends it returns at once; the request leaves the
// batch after the burst under way, and until then its constraint is in use.
func (d *decoder) Decode(ctx context.Context, r model.DecodeRequest) (model.Completion, error) {
	q, err := newDecodeRequest(d.held.of.Architecture, r)
	if err == nil {
		err = d.answer(ctx, q)
	}
	if err != nil {
		return model.Completion{}, fmt.Errorf("decode: %w", err)
	}
	return q.completion, nil
}

// Score implements model.Scorer: a request whose tokens are given.
func (d *decoder) Score(ctx context.Context, prompt, tokens []int32) ([]float32, error) {
	a := d.held.of.Architecture
	if err := checkTokens(a, tokens); err != nil {
		return nil, fmt.Errorf("score: %w", err)
	}
	q, err := newDecodeRequest(a, model.DecodeRequest{Prompt: prompt, MaxTokens: len(tokens)})
	if err == nil && q.limit < len(tokens) {
		err = fmt.Errorf("%w: %d tokens and %d to score, the model has %d positions", model.ErrPromptTooLong, len(prompt), len(tokens), a.MaxPositions)
	}
	if err == nil {
		q.given = slices.Clone(tokens)
		err = d.answer(ctx, q)
	}
	if err != nil {
		return nil, fmt.Errorf("score: %w", err)
	}
	return q.completion.Logprobs, nil
}

// answer queues q for the owner of the batch and waits until q is done. The caller's
// goroutine emits the samples here, so they never hold up the batch, and none is emitted
// after the answer.
func (d *decoder) answer(ctx context.Context, q *decodeRequest) error {
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

// Close frees what the program holds. Requests under way return ErrClosed.
func (d *decoder) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.notify()
	<-d.gone
}

func (d *decoder) queue(q *decodeRequest) bool {
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
	defer d.held.Close()
	for {
		if d.idle() {
			<-d.changed
		}
		if d.admit() {
			d.fail(ErrClosed)
			return
		}
		d.dropAbandoned()
		if len(d.running) > 0 || len(d.left) > 0 {
			d.advance()
		}
	}
}

// idle reports whether there is nothing to do.
func (d *decoder) idle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.running) == 0 && len(d.left) == 0 && len(d.waiting) == 0 && !d.closed
}

// admit moves waiting requests into the batch. closed reports whether the decoder is
// closed.
func (d *decoder) admit() (closed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.waiting)
	if !d.closed {
		n = min(n, max(0, d.most-len(d.running)))
	}
	for _, q := range d.waiting[:n] {
		d.ids++
		q.id = d.ids
		d.running = append(d.running, q)
	}
	d.waiting = slices.Delete(d.waiting, 0, n)
	return d.closed
}

// dropAbandoned removes requests whose callers have left.
func (d *decoder) dropAbandoned() {
	d.running = slices.DeleteFunc(d.running, func(q *decodeRequest) bool {
		if !q.abandoned.Load() {
			return false
		}
		d.leave(q)
		return true
	})
}

func (d *decoder) leave(q *decodeRequest) {
	if q.joined {
		d.left = append(d.left, q.id)
	}
	close(q.done)
}

// fail answers all requests with err.
func (d *decoder) fail(err error) {
	d.left = nil
	for _, q := range d.running {
		q.err = err
		d.leave(q)
	}
	d.running = nil
}

// advance asks the program for one burst. An error empties the program's batch.
func (d *decoder) advance() {
	d.restrict()
	if len(d.running) == 0 && len(d.left) == 0 {
		return
	}
	body, arrays := d.body()
	r, err := d.held.exchange(context.Background(), "decode", body, [][]array{arrays})
	switch {
	case errors.Is(err, errMemory) && len(d.running) > 1:
		d.shrink()
		return
	case err == nil:
		d.left = nil
		for _, q := range d.running {
			q.joined = true
		}
		err = d.take(r[0])
	}
	if err != nil {
		d.fail(err)
		return
	}
	d.running = slices.DeleteFunc(d.running, func(q *decodeRequest) bool {
		if !q.finished() {
			return false
		}
		d.leave(q) // the program itself drops a sequence only if it sees the end
		return true
	})
}

// shrink halves the batch when the device has too little memory for it. All requests
// continue where they were; those that have to wait come first in the queue.
func (d *decoder) shrink() {
	d.most, d.left = max(1, len(d.running)/2), nil
	for _, q := range d.running {
		q.joined = false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = slices.Concat(d.running[d.most:], d.waiting)
	d.running = d.running[:d.most]
	d.notify()
}

// restrict asks every request which tokens may come next, and fails requests for which
// none may.
func (d *decoder) restrict() {
	d.running = slices.DeleteFunc(d.running, func(q *decodeRequest) bool {
		if q.err = q.restrict(d.held.of.Architecture.VocabSize); q.err == nil {
			return false
		}
		d.leave(q)
		return true
	})
}

// decoding is the body of the verb decode.
type decoding struct {
	Steps   int       `json:"steps"` // most tokens of each sequence
	Seconds float64   `json:"seconds"`
	Tokens  int       `json:"tokens"` // largest number in one pass over prompts
	Leave   []int32   `json:"leave,omitempty"`
	Join    []joining `json:"join,omitempty"`
	// Masked holds the sequences whose next token is restricted. Masks holds the number
	// of each one's set in the array bits.
	Masked []int32 `json:"masked,omitempty"`
	Masks  []int32 `json:"masks,omitempty"`
}

func (d *decoder) body() (decoding, []array) {
	b := decoding{Steps: burst, Seconds: burstSeconds, Tokens: d.held.tokens, Leave: d.left}
	var prompts, given []int32
	var bits []byte
	for _, q := range d.running {
		if !q.joined {
			var j joining
			j, prompts, given = q.join(prompts, given)
			b.Join = append(b.Join, j)
		}
		if q.Constraint != nil { // which tokens may follow the next one is known only after it is sampled
			b.Steps = 1
		}
		if q.allowed != nil {
			b.Masked, b.Masks = append(b.Masked, q.id), append(b.Masks, int32(len(b.Masks)))
			bits = appendBits(bits, q.allowed)
		}
	}
	width := (d.held.of.Architecture.VocabSize + 63) / 64 * 8
	return b, []array{
		newArray("prompts", prompts, len(prompts)), newArray("given", given, len(given)), newArray("bits", bits, len(b.Masks), width),
	}
}

// take gives the requests what was sampled.
func (d *decoder) take(r reply) error {
	if len(r.Arrays) != 4 || len(r.Arrays[0].Shape) != 1 {
		return fmt.Errorf("decode: %w: %d arrays, want 4", errFrame, len(r.Arrays))
	}
	n := r.Arrays[0].Shape[0]
	ids, err := r.Arrays[0].integers(n)
	if err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	tokens, err := r.Arrays[1].integers(n)
	if err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	logprobs, err := r.Arrays[2].floats(n)
	if err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	only := r.Arrays[3].data
	if len(only) != n {
		return fmt.Errorf("decode: %w: %d bytes of array only, want %d", errFrame, len(only), n)
	}
	byID := make(map[int32]*decodeRequest, len(d.running))
	for _, q := range d.running {
		byID[q.id] = q
	}
	for i, id := range ids {
		q := byID[id]
		if q == nil {
			return fmt.Errorf("decode: %w: a token of sequence %d, which is not asked for", errFrame, id)
		}
		if !q.finished() {
			q.accept(tokens[i], logprobs[i], only[i] != 0)
		}
	}
	return nil
}
