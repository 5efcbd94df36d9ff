package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/model"
)

// ErrLogprobs is wrapped if a server reports other log-probabilities than those of the
// distribution that it samples from.
var ErrLogprobs = errors.New("the server's log-probabilities are those before its settings apply, whatever it samples from")

// checkLogprobs checks, once for each replica, whether its log-probabilities take into
// account what the request changes: the temperature, and the ids that are left out. A replica that failed is probed again, because it may return
// with other settings.
func (s *Sampler) checkLogprobs(ctx context.Context, at *replica, name string, temperature float64) error {
	changed := temperature != 1 || s.options.Unused != ""
	if s.options.Versions == None || temperature == 0 || !changed || at.isChecked() {
		return nil
	}
	applied, err := s.protocol.appliesTemperature(ctx, s, at, name)
	if err != nil {
		return fmt.Errorf("probe its log-probabilities: %w", err)
	}
	if !applied {
		how := "start it with --logprobs-mode processed_logprobs (vLLM) or without RETURN_ORIGINAL_LOGPROB (SGLang)"
		if s.options.Unused != "" {
			return fmt.Errorf("%w: %s: %d rows of the model's vocabulary have no token and are left out", ErrLogprobs, how, s.options.Unused.Tokens())
		}
		return fmt.Errorf("%w: %s, or set sampling.temperature to 1, not %g", ErrLogprobs, how, temperature)
	}
	at.markChecked()
	return nil
}

// appliesTemperature implements protocol. It allows only one token. That token then has
// the log-probability 0, unless the server reports log-probabilities of the distribution
// before it is changed.
func (p vllm) appliesTemperature(ctx context.Context, s *Sampler, at *replica, name string) (bool, error) {
	in, err := p.request(name, model.DecodeRequest{Prompt: []int32{0}, MaxTokens: 1, Temperature: 1})
	if err != nil {
		return false, err
	}
	in.Allowed, in.LogitBias = []int32{1}, nil
	response, err := s.post(ctx, at.url+"/v1/completions", in) //nolint:bodyclose // readJSON closes it
	if err != nil {
		return false, err
	}
	var all vllmReply
	if err := readJSON(response, &all); err != nil {
		return false, err
	}
	var out reply
	if err := all.addTo(&out, nil); err != nil {
		return false, err
	}
	if len(out.completion.Logprobs) != 1 {
		return false, fmt.Errorf("%w: %d log-probabilities of one token", ErrReply, len(out.completion.Logprobs))
	}
	return out.completion.Logprobs[0] > -1e-3, nil
}

// appliesTemperature implements protocol. It samples at a temperature that makes all
// tokens about equally likely, so their log-probabilities must be about equal.
func (p sglang) appliesTemperature(ctx context.Context, s *Sampler, at *replica, name string) (bool, error) {
	const hot, tokens, spread = 1e4, 16, 0.1
	got, err := p.sample(ctx, s, at, name, model.DecodeRequest{Prompt: []int32{0}, MaxTokens: tokens, Temperature: hot})
	if err != nil {
		return false, err
	}
	all := got.completion.Logprobs
	if len(all) == 0 {
		return false, fmt.Errorf("%w: it has no log-probabilities", ErrReply)
	}
	return slices.Max(all)-slices.Min(all) < spread, nil
}

// appliesTemperature implements protocol. Nothing that such a server samples is trained.
func (*openAI) appliesTemperature(context.Context, *Sampler, *replica, string) (bool, error) {
	return true, nil
}

func (r *replica) isChecked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.checked
}

func (r *replica) markChecked() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checked = true
}
