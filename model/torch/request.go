package torch

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/fulgurite/fulgurite/model"
)

// decodeRequest is one completion in progress. Until done is closed, only the owner of
// the decoder may touch it, except for abandoned.
type decodeRequest struct {
	model.DecodeRequest
	id     int32   // in the program
	limit  int     // most tokens to sample
	given  []int32 // tokens to use instead of sampling; either none, or limit of them
	joined bool    // the program has it
	// samples passes each token to the caller that waits for the request. It has room for
	// all of them. It is nil if the caller does not listen.
	samples chan sample
	// restricted says that not every token may come next. allowed holds those that may;
	// it is nil if only TopP restricts them.
	restricted bool
	allowed    model.TokenSet

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

func newDecodeRequest(a model.Architecture, r model.DecodeRequest) (*decodeRequest, error) {
	if err := checkTokens(a, r.Prompt); err != nil {
		return nil, fmt.Errorf("prompt: %w", err)
	}
	room := a.MaxPositions - len(r.Prompt)
	switch {
	case room < 1:
		return nil, &model.PromptTooLong{Tokens: len(r.Prompt), Positions: a.MaxPositions}
	case r.MaxTokens < 1:
		return nil, fmt.Errorf("%w: at most %d tokens asked for, want at least 1", ErrRow, r.MaxTokens)
	}
	if nucleus := r.TopP >= 0 && r.TopP <= 1; !nucleus { // also refuses NaN
		return nil, fmt.Errorf("%w: top_p is %v, want 0 to 1", ErrRow, r.TopP)
	}
	if err := checkTemperature(r.Temperature); err != nil {
		return nil, err
	}
	// The caller may change its slices when Decode has returned because ctx ended.
	r.Prompt, r.Stop = slices.Clone(r.Prompt), slices.Clone(r.Stop)
	q := &decodeRequest{DecodeRequest: r, limit: min(r.MaxTokens, room), done: make(chan struct{})}
	if r.Emit != nil {
		q.samples = make(chan sample, q.limit)
	}
	return q, nil
}

// restrict determines which tokens may come next. It returns an error if none may.
func (q *decodeRequest) restrict(vocab int) error {
	q.restricted, q.allowed = q.TopP > 0 && q.TopP < 1 && q.Temperature > 0 && q.given == nil, nil
	if q.Constraint == nil {
		return nil
	}
	set := model.NewTokenSet(vocab)
	if !q.Constraint.Allowed(set) {
		return nil
	}
	if len(set.AppendTokens(nil, vocab)) == 0 {
		return fmt.Errorf("%w: it allows no token of the vocabulary after %d tokens of the completion", model.ErrForm, len(q.completion.Tokens))
	}
	q.restricted, q.allowed = true, set
	return nil
}

// accept takes a sampled token; only says that no other token was possible.
func (q *decodeRequest) accept(token int32, logprob float32, only bool) {
	if math.IsNaN(float64(logprob)) || math.IsInf(float64(logprob), 0) {
		q.err = fmt.Errorf("logits of token %d of the completion: %w", len(q.completion.Tokens), ErrNotFinite)
		return
	}
	c, forced := &q.completion, q.restricted && only
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

func (q *decodeRequest) finished() bool { return q.err != nil || q.completion.Finish != "" }

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
	n := len(q.completion.Tokens)
	j := joining{
		ID: q.id, Length: len(q.Prompt) + n, Temperature: q.Temperature, TopP: q.TopP, Seed: q.Seed, First: n, Limit: q.limit - n, Stop: q.Stop,
	}
	if q.given != nil {
		j.Given = len(q.given) - n
		given = append(given, q.given[n:]...)
	}
	return j, append(append(prompts, q.Prompt...), q.completion.Tokens...), given
}

// appendBits appends a set as the program reads it: bit k of byte j is for token 8j+k.
func appendBits(bits []byte, set model.TokenSet) []byte {
	for _, word := range set {
		bits = binary.LittleEndian.AppendUint64(bits, word)
	}
	return bits
}
