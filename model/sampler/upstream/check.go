package upstream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/fulgurite/fulgurite/model"
)

// check reports what is impossible in a reply: it would otherwise be recorded as the
// policy's output. unused lists the ids that the server was told never to sample.
func (r reply) check(request model.DecodeRequest, version string, unused model.TokenRanges) error {
	c := r.completion
	switch {
	case version != "" && r.version != version:
		return fmt.Errorf("%w: %s sampled, not %s", ErrVersion, orUnnamed(r.version), version)
	case r.prompt != nil && !slices.Equal(r.prompt, request.Prompt):
		return fmt.Errorf("%w: it sampled after a prompt of %d tokens that is not the one of %d that was sent: does it add special tokens?",
			ErrReply, len(r.prompt), len(request.Prompt))
	case len(c.Tokens) == 0:
		return fmt.Errorf("%w: it has no token ids: is this version of the server too old to return them?", ErrReply)
	case len(c.Tokens) != len(c.Logprobs):
		return fmt.Errorf("%w: %d token ids and %d log-probabilities", ErrReply, len(c.Tokens), len(c.Logprobs))
	case len(c.Tokens) > request.MaxTokens:
		return fmt.Errorf("%w: %d tokens, %d were asked for", ErrReply, len(c.Tokens), request.MaxTokens)
	case c.Finish != "stop" && c.Finish != "length":
		return fmt.Errorf("%w: it ended for the reason %q", ErrReply, c.Finish)
	}
	for i, p := range c.Logprobs {
		if math.IsNaN(float64(p)) || math.IsInf(float64(p), 0) || p > 1e-3 {
			return fmt.Errorf("%w: the log-probability of token %d is %v", ErrReply, i, p)
		}
		if c.Tokens[i] < 0 {
			return fmt.Errorf("%w: token %d has the id %d", ErrReply, i, c.Tokens[i])
		}
		if unused.Has(c.Tokens[i]) {
			return fmt.Errorf("%w: token %d has the id %d, which no token has: it was told by logit_bias not to sample that id; does a proxy leave logit_bias out?", ErrReply, i, c.Tokens[i])
		}
	}
	last := c.Tokens[len(c.Tokens)-1]
	if c.Finish == "stop" && !slices.Contains(request.Stop, last) && (request.Form == nil || len(request.Form.Stop) == 0 && !request.Form.Masks()) {
		return fmt.Errorf("%w: it stopped with token %d, which ends no turn", ErrReply, last)
	}
	return nil
}

func orUnnamed(version string) string {
	if version == "" {
		return "a version without a name"
	}
	return version
}

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

// ErrSampling is wrapped if a server does not sample from the log-probabilities that it
// reports.
var ErrSampling = errors.New("the server samples from another distribution than it says")

// probeTokens is how many tokens a probe samples: enough for a model to repeat itself,
// which reveals a penalty.
const probeTokens = 32

// probe checks, once for each replica, whether it samples only from its
// log-probabilities. It samples greedily and lets the server score the same tokens as a
// prompt. It expects the same log-probabilities, and that each token is the likeliest. So
// it detects penalties and biases that are added or not removed, ids that are made again
// from text, and a server that computes differently when it samples than when it scores.
func (s *Sampler) probe(ctx context.Context, at *replica, name string, prompt []int32) error {
	if at.isProbed() {
		return nil
	}
	in, err := vllm{newBiases(s.options.Unused)}.request(name, model.DecodeRequest{Prompt: prompt, MaxTokens: probeTokens})
	if err != nil {
		return fmt.Errorf("probe what it samples: %w", err)
	}
	all, err := s.askApart(ctx, at, in)
	var got reply
	if err == nil {
		err = all.addTo(&got, nil)
	}
	if err != nil {
		return fmt.Errorf("probe what it samples: %w", err)
	}
	tokens := got.completion.Tokens
	switch {
	case got.prompt == nil:
		return fmt.Errorf("%w: it does not say the ids of its prompt (return_token_ids): is it older than vLLM 0.11, or does a proxy leave them out?", ErrReply)
	case !slices.Equal(got.prompt, prompt):
		return fmt.Errorf("%w: it sampled after a prompt of %d tokens that is not the one of %d that was sent: does it add special tokens?", ErrReply, len(got.prompt), len(prompt))
	case len(tokens) == 0:
		return fmt.Errorf("%w: it has no token ids", ErrReply)
	}
	scored, best, err := s.score(ctx, at, name, prompt, tokens)
	if err != nil {
		return fmt.Errorf("probe what it samples: %w", err)
	}
	apart, unlikely := 0.0, 0.0
	for i, p := range got.completion.Logprobs {
		apart += square(p - scored[i])
		unlikely += square(best[i] - scored[i])
	}
	n := float64(len(tokens))
	if rms := math.Sqrt(unlikely / n); rms > s.options.Tolerance {
		return fmt.Errorf("%w: its tokens at temperature 0 are %.3g nats less likely than the likeliest ones (root of the mean square over %d tokens): something between fulgurite and the model changes or drops settings such as repetition_penalty",
			ErrSampling, rms, len(tokens))
	}
	if rms := math.Sqrt(apart / n); rms > s.options.Tolerance {
		return fmt.Errorf("%w: the tokens that it samples have log-probabilities %.3g nats from those that it gives them as a prompt (root of the mean square over %d tokens)",
			ErrSampling, rms, len(tokens))
	}
	at.markProbed()
	return nil
}

func (r *replica) isProbed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.probed
}

func (r *replica) markProbed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.probed = true
}
