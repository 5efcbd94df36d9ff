package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/model"
)

const (
	// probeTemperature is so high that all tokens are about equally likely.
	probeTemperature = 1e4
	probeTokens      = 16
	// probeSpread is the most by which log-probabilities differ there, in nats.
	probeSpread = 0.1
)

// ErrLogprobs is wrapped where a server says other log-probabilities than those of
// the distribution that it samples from.
var ErrLogprobs = errors.New("the server's log-probabilities are those at temperature 1, whatever it samples at")

// probe finds out, once for each replica, whether its log-probabilities heed the
// temperature. At one that makes all tokens equally likely they have to be equal. A
// replica that failed is probed again, since it may come back with other settings.
func (s *Sampler) probe(ctx context.Context, at *replica, name string, temperature float64) error {
	if s.options.Versions == None || temperature == 0 || temperature == 1 || at.isProbed() {
		return nil
	}
	got, err := s.protocol.sample(ctx, s, at, name, model.DecodeRequest{Prompt: []int32{0}, MaxTokens: probeTokens, Temperature: probeTemperature})
	if err != nil {
		return fmt.Errorf("probe its log-probabilities: %w", err)
	}
	p := got.completion.Logprobs
	switch {
	case len(p) == 0:
		return fmt.Errorf("%w: it has no log-probabilities", ErrReply)
	case slices.Max(p)-slices.Min(p) > probeSpread:
		return fmt.Errorf("%w: start it with --logprobs-mode processed_logprobs (vLLM) or without RETURN_ORIGINAL_LOGPROB (SGLang), or set sampling.temperature to 1, not %g", ErrLogprobs, temperature)
	}
	at.probed(true)
	return nil
}

func (r *replica) isProbed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heeds
}

func (r *replica) probed(heeds bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heeds = heeds
}
