package torch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/decode"
)

const (
	// burst is the largest number of tokens of each sequence that the program samples
	// before requests may join and leave and the engine's trainers may use the program.
	burst = 16
	// burstSeconds ends a burst earlier. It is about how long a joining request waits, or
	// one that streams.
	burstSeconds = 0.1
)

var (
	_ model.Decoder = (*decoder)(nil)
	_ model.Scorer  = (*decoder)(nil)
)

// decoder implements model.Decoder. One goroutine owns the batch. It asks the program for
// one burst of tokens at a time; requests join and leave between bursts.
type decoder struct {
	*decode.Front[*decodeRequest]
	held *trainer // the version's weights, without moments
	most int      // sequences at once

	// The goroutine owns the following fields.
	running []*decodeRequest
	left    []int32 // ids of sequences that the program still has to drop
	ids     int32
}

func newDecoder(held *trainer, most int) *decoder {
	front := decode.NewFront(held.of.Architecture, func(q *decode.Request) *decodeRequest { return &decodeRequest{Request: q} })
	d := &decoder{Front: front, held: held, most: most}
	d.Own(d.own)
	return d
}

// own runs the batch until Close.
func (d *decoder) own() {
	defer d.held.Close()
	for {
		if len(d.running) == 0 && len(d.left) == 0 {
			<-d.Changed()
		}
		if d.admit() {
			d.fail(decode.ErrClosed)
			return
		}
		d.dropAbandoned()
		if len(d.running) > 0 || len(d.left) > 0 {
			d.advance()
		}
	}
}

// admit moves waiting requests into the batch. closed reports whether the decoder is
// closed.
func (d *decoder) admit() (closed bool) {
	n := len(d.running)
	d.running, closed = d.Take(d.running, d.most-n)
	for _, q := range d.running[n:] {
		d.ids++
		q.id = d.ids
		q.Join()
	}
	return closed
}

// dropAbandoned removes requests whose callers have left.
func (d *decoder) dropAbandoned() {
	d.running = slices.DeleteFunc(d.running, func(q *decodeRequest) bool {
		if !q.IsAbandoned() {
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
	q.End()
}

// fail answers all requests with err.
func (d *decoder) fail(err error) {
	d.left = nil
	for _, q := range d.running {
		q.Err = err
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
		if !q.Finished() {
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
	d.Return(d.running[d.most:])
	d.running = d.running[:d.most]
}

// restrict asks every request which tokens may come next, and fails requests for which
// none may.
func (d *decoder) restrict() {
	d.running = slices.DeleteFunc(d.running, func(q *decodeRequest) bool {
		if q.Err = q.restrict(d.held.of.Architecture.VocabSize); q.Err == nil {
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
		if !q.Finished() {
			q.accept(tokens[i], logprobs[i], only[i] != 0)
		}
	}
	return nil
}

// decodeRequest is one completion in progress.
type decodeRequest struct {
	*decode.Request
	id     int32 // in the program
	joined bool  // the program has it
	// restricted says that not every token may come next. allowed holds those that may;
	// it is nil if only TopP restricts them.
	restricted bool
	allowed    model.TokenSet
}

// restrict determines which tokens may come next. It returns an error if none may.
func (q *decodeRequest) restrict(vocab int) error {
	q.restricted, q.allowed = q.HasNucleus(), nil
	if q.Constraint == nil {
		return nil
	}
	set := model.NewTokenSet(vocab)
	if !q.Constraint.Allowed(set) {
		return nil
	}
	if len(set.AppendTokens(nil, vocab)) == 0 {
		return fmt.Errorf("%w: it allows no token of the vocabulary after %d tokens of the completion", model.ErrForm, len(q.Completion.Tokens))
	}
	q.restricted, q.allowed = true, set
	return nil
}

// accept takes a sampled token; only says that no other token was possible.
func (q *decodeRequest) accept(token int32, logprob float32, only bool) {
	if math.IsNaN(float64(logprob)) || math.IsInf(float64(logprob), 0) {
		q.Err = fmt.Errorf("logits of token %d of the completion: %w", len(q.Completion.Tokens), model.ErrNotFinite)
		return
	}
	q.Accept(token, logprob, q.restricted && only)
}

// joining is a sequence in the body of the verb decode. Arrays hold its prompt and its
// given tokens.
type joining struct {
	ID          int32   `json:"id"`
	Length      int     `json:"length"` // of the prompt
	Given       int     `json:"given"`  // tokens
	Temperature float64 `json:"temperature"`
	TopP        float64 `json:"top_p"`
	Seed        uint64  `json:"seed"`
	First       int     `json:"first"` // number of tokens at the prompt's end that were sampled before
	Limit       int     `json:"limit"` // most tokens from here on
	Stop        []int32 `json:"stop,omitempty"`
}

// join describes q to the program. Tokens that were sampled already are appended to its
// prompt.
func (q *decodeRequest) join(prompts, given []int32) (joining, []int32, []int32) {
	n := len(q.Completion.Tokens)
	j := joining{
		ID: q.id, Length: len(q.Prompt) + n, Temperature: q.Temperature, TopP: q.TopP, Seed: q.Seed, First: n, Limit: q.Limit - n, Stop: q.Stop,
	}
	if q.Given != nil {
		j.Given = len(q.Given) - n
		given = append(given, q.Given[n:]...)
	}
	return j, append(append(prompts, q.Prompt...), q.Completion.Tokens...), given
}

// appendBits appends a set as the program reads it: bit k of byte j is for token 8j+k.
func appendBits(bits []byte, set model.TokenSet) []byte {
	for _, word := range set {
		bits = binary.LittleEndian.AppendUint64(bits, word)
	}
	return bits
}
