package torch

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/decode"
)

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
