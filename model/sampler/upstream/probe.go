package upstream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/fulgurite/fulgurite/model"
)

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
