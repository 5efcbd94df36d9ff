package upstream

import (
	"context"
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/model"
)

const (
	// defaultTolerance is nearly three times the effect of BF16 on the log-probabilities
	// of random tokens under SmolLM2-135M (0.11), and a small part of the effect of
	// another base.
	defaultTolerance = 0.3
	// leastNoise, in nats, is the difference allowed to a server that computes in F32.
	leastNoise = 1e-3
	// certain is how many standard errors must lie between an adapter and none for a
	// canary to distinguish them. With half of them on either side, a right adapter is
	// refused less than once in a million times.
	certain = 10
)

// comparison sums up the log-probabilities of a canary's tokens: the server's with the
// adapter (a) and without it (b), and the trainer's with it (t) and without it (u). Sums
// are weighted by the inverse square of the server's noise in their row, so they are in
// units of it. The noise is the root of the mean of (b−u)².
type comparison struct {
	tokens int
	base   float64 // Σ (b−u)², not weighted
	off    float64 // Σ (a−t)², not weighted
	rest   float64 // Σ (a−t)²
	effect float64 // Σ (t−u)²
	along  float64 // Σ (a−b)(t−u)
}

// verifyCanary makes a server score the canary's text. It returns an error that wraps
// model.ErrWrongWeights if the server's numbers do not agree with the trainer's.
//
// A server computes in BF16 and with other kernels, so its numbers are never equal to the
// bit. An adapter is distinguished from none by the share of t−u that a−b contains,
// Σ(a−b)(t−u)/Σ(t−u)²: 1 for the right adapter and 0 without one. The standard error of
// this share is √(2/Σ(t−u)²), in units of noise. If at least certain standard errors lie
// between 0 and 1, a share below a half can't be chance: the absence of an adapter that
// moves n tokens by at least 14/√n of the server's noise is detected. Weights that have
// another effect in addition, or instead, are detected if that effect exceeds twice the
// noise plus half of the adapter's effect. Smaller differences, such as those between two
// adjacent versions, are distinguished only by the digest in the adapter's name.
func (s *Sampler) verifyCanary(ctx context.Context, at *replica, name string, canary model.Canary) error {
	var c comparison
	for i, row := range canary.Rows {
		adapted, _, err := s.score(ctx, at, name, row.Prompt, row.Tokens)
		if err != nil {
			return fmt.Errorf("ask for canary %d: %w", i, err)
		}
		if len(row.Base) == 0 {
			c.addWhole(row, adapted)
			continue
		}
		bare, _, err := s.score(ctx, at, s.options.Model, row.Prompt, row.Tokens)
		if err != nil {
			return fmt.Errorf("ask for canary %d: %w", i, err)
		}
		c.add(row, adapted, bare)
	}
	return c.check(s.options.Model, name, s.options.Tolerance)
}

// addWhole adds a row for which only the version's own log-probabilities are known.
func (c *comparison) addWhole(row model.CanaryRow, adapted []float32) {
	for i, t := range row.Logprobs {
		c.tokens++
		c.off += square(adapted[i] - t)
	}
}

// add adds a row that the trainer scored with the adapter and without it.
func (c *comparison) add(row model.CanaryRow, adapted, bare []float32) {
	c.addWhole(row, adapted)
	noise := 0.0
	for i, u := range row.Base {
		noise += square(bare[i] - u)
	}
	c.base += noise
	weight := 1 / math.Max(noise/float64(len(bare)), leastNoise*leastNoise)
	for i, t := range row.Logprobs {
		moved := t - row.Base[i]
		c.rest += weight * square(adapted[i]-t)
		c.effect += weight * square(moved)
		c.along += weight * float64(adapted[i]-bare[i]) * float64(moved)
	}
}

// check reports sums that are impossible with the right weights.
func (c *comparison) check(base, name string, tolerance float64) error {
	n := float64(c.tokens)
	switch {
	case !(math.Sqrt(c.base/n) <= tolerance):
		return fmt.Errorf("%w: its log-probabilities of %q are %.3g nats from those of model.base (root of the mean square over %d tokens, sampling.server.tolerance is %g): it serves another model, or in another precision",
			model.ErrWrongWeights, base, math.Sqrt(c.base/n), c.tokens, tolerance)
	case c.effect >= 2*certain*certain && c.along < c.effect/2:
		return fmt.Errorf("%w: adapter %s does %.0f %% of what it does at the trainer: the server left it out, or loaded another one",
			model.ErrWrongWeights, name, 100*c.along/c.effect)
	case !(math.Sqrt(c.rest/n) <= 2+math.Sqrt(c.effect/n)/2) || !(math.Sqrt(c.off/n) <= tolerance+math.Sqrt(c.base/n)):
		return fmt.Errorf("%w: with adapter %s its log-probabilities are %.3g nats from the trainer's, without it %.3g (root of the mean square over %d tokens, sampling.server.tolerance is %g): the adapter's files are damaged, or those of another",
			model.ErrWrongWeights, name, math.Sqrt(c.off/n), math.Sqrt(c.base/n), c.tokens, tolerance)
	}
	return nil
}

func square(x float32) float64 { return float64(x) * float64(x) }
