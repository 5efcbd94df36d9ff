package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// CanaryFormat names the layout of a version's canary; docs/formats.md describes
// it.
const CanaryFormat = "fulgurite.canary/1"

var (
	// ErrCanary is wrapped by every error of Canary.Check and ParseCanary.
	ErrCanary = errors.New("bad canary")
	// ErrWrongWeights says that a sampler does not compute the same numbers as the
	// version's trainer: its weights are not the version's, or its arithmetic is broken.
	// It must not serve that version.
	ErrWrongWeights = errors.New("wrong weights")
)

// Canary has the log-probabilities of a few fixed prompts under a version, computed by
// its trainer from the weights in memory. A sampler that loads the version has to compute
// the same. This finds errors that digests can't: weights that were stored, read,
// converted or placed wrongly although every byte is intact.
type Canary struct {
	Format string `json:"format"`
	// Fingerprint is the fingerprint of the trainer's engine.
	Fingerprint string `json:"fingerprint"`
	// Exact reports whether engines with this Fingerprint have to compute equal bits.
	Exact bool `json:"exact"`
	// Tolerance is the largest accepted difference, in nats for each token, where equal
	// bits are not required.
	Tolerance float64     `json:"tolerance"`
	Rows      []CanaryRow `json:"rows"`
}

// CanaryRow is one prompt, a continuation of it that nobody sampled, and the
// log-probability of each of the continuation's tokens, at temperature 1.
type CanaryRow struct {
	Prompt   []int32   `json:"prompt"`
	Tokens   []int32   `json:"tokens"`
	Logprobs []float32 `json:"logprobs"`
	// Base has the log-probabilities without the version's adapter; empty if they are not
	// known.
	Base []float32 `json:"base,omitempty"`
}

const (
	canaryRows   = 4
	canaryTokens = 16 // the most tokens of one row, prompt included
	canaryPrompt = 4  // how many of them are the prompt
	canarySeed   = 0x63616e617279
	// canaryTolerance is some hundred times the effect of another order of float32 sums
	// on a log-probability, and a tenth of the effect of one training step.
	canaryTolerance = 1e-3
)

// Approximate is implemented by engines whose log-probabilities may differ from other
// engines' by more than another order of sums would explain.
type Approximate interface {
	// CanaryTolerance returns how far, in nats for each token, the log-probabilities of a
	// sampler with the right weights may be off.
	CanaryTolerance() float64
}

// Scorer is a decoder that can say how likely given tokens are, by the path that
// samples: log p(tokens[i] | prompt, tokens[:i]) for each i, at temperature 1.
type Scorer interface {
	Score(ctx context.Context, prompt, tokens []int32) ([]float32, error)
}

// NewCanary computes the canary of the weights that t, a trainer of e, holds. The canary
// has no rows if a has fewer than two positions.
func NewCanary(ctx context.Context, e Engine, a Architecture, t Trainer) (Canary, error) {
	c := Canary{
		Format: CanaryFormat, Fingerprint: e.Fingerprint(), Exact: e.Deterministic(), Tolerance: canaryTolerance,
		Rows: []CanaryRow{},
	}
	if of, ok := e.(Approximate); ok {
		c.Tolerance = max(c.Tolerance, of.CanaryTolerance())
	}
	n := min(canaryTokens, a.MaxPositions)
	if n < 2 {
		return c, nil
	}
	prompt := min(canaryPrompt, n-1)
	random := rand.New(rand.NewPCG(canarySeed, uint64(a.VocabSize)))
	rows := make([]Row, canaryRows)
	for i := range rows {
		rows[i] = Row{Tokens: make([]int32, n), Temperature: 1}
		for j := range n {
			token := random.Int32N(int32(a.VocabSize))
			for a.Unused.Has(token) {
				token = random.Int32N(int32(a.VocabSize))
			}
			rows[i].Tokens[j] = token
		}
	}
	logprobs, _, err := t.Score(ctx, rows)
	if err != nil {
		return Canary{}, fmt.Errorf("score canaries: %w", err)
	}
	for i, r := range rows {
		c.Rows = append(c.Rows, CanaryRow{Prompt: r.Tokens[:prompt], Tokens: r.Tokens[prompt:], Logprobs: logprobs[i][prompt-1:]})
	}
	return c, c.Check()
}

// Check returns an error if c contradicts the format.
func (c Canary) Check() error {
	if c.Format != CanaryFormat {
		return fmt.Errorf("%w: format is %q, want %q", ErrCanary, c.Format, CanaryFormat)
	}
	if !(c.Tolerance >= 0) || math.IsInf(c.Tolerance, 0) {
		return fmt.Errorf("%w: tolerance is %v", ErrCanary, c.Tolerance)
	}
	for i, r := range c.Rows {
		if len(r.Prompt) == 0 || len(r.Tokens) == 0 || len(r.Logprobs) != len(r.Tokens) {
			return fmt.Errorf("%w: row %d has %d prompt tokens, %d tokens, %d log-probabilities", ErrCanary, i, len(r.Prompt), len(r.Tokens), len(r.Logprobs))
		}
		if len(r.Base) > 0 && len(r.Base) != len(r.Tokens) {
			return fmt.Errorf("%w: row %d has %d tokens and %d log-probabilities of the base", ErrCanary, i, len(r.Tokens), len(r.Base))
		}
		for j, l := range slices.Concat(r.Logprobs, r.Base) {
			if !finite(float64(l)) {
				return fmt.Errorf("%w: row %d token %d has log-probability %v", ErrCanary, i, j%len(r.Tokens), l)
			}
		}
	}
	return nil
}

// Verify scores the rows with d, a decoder of e. It returns ErrWrongWeights, with the
// place and both numbers, if d computes other log-probabilities.
func (c Canary) Verify(ctx context.Context, e Engine, d Decoder) error {
	if len(c.Rows) == 0 {
		return nil
	}
	scorer, ok := d.(Scorer)
	if !ok {
		return fmt.Errorf("verify canaries: the decoder of engine %s can't score given tokens", e.Name())
	}
	tolerance := c.Tolerance
	if c.Exact && e.Deterministic() && e.Fingerprint() == c.Fingerprint {
		tolerance = 0
	}
	for i, r := range c.Rows {
		got, err := scorer.Score(ctx, r.Prompt, r.Tokens)
		if err != nil {
			return fmt.Errorf("verify canary %d: %w", i, err)
		}
		if len(got) != len(r.Logprobs) {
			return fmt.Errorf("verify canary %d: %d log-probabilities of %d tokens", i, len(got), len(r.Tokens))
		}
		for j, want := range r.Logprobs {
			if got[j] != want && !(math.Abs(float64(got[j])-float64(want)) <= tolerance) {
				return fmt.Errorf("%w: canary %d, token %d after prompt %v: log-probability %v here, %v at the trainer (more than %v apart)",
					ErrWrongWeights, i, j, r.Prompt, got[j], want, tolerance)
			}
		}
	}
	return nil
}

// Encode checks c and returns its JSON; equal canaries give equal bytes, and
// every number is read back to the bit.
func (c Canary) Encode() ([]byte, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode canary: %w", err)
	}
	return append(b, '\n'), nil
}

// ParseCanary reads what Encode, or an external trainer, wrote.
func ParseCanary(b []byte) (Canary, error) {
	var c Canary
	if err := json.Unmarshal(b, &c); err != nil {
		return Canary{}, fmt.Errorf("%w: %w", ErrCanary, err)
	}
	return c, c.Check()
}
