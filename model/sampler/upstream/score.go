package upstream

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/fulgurite/fulgurite/model"
)

// score asks a server of type VLLM for the log-probabilities of given tokens after a
// prompt, at temperature 1, and for that of the likeliest token in the place of each.
func (s *Sampler) score(ctx context.Context, at *replica, name string, prompt, tokens []int32) (logprobs, best []float32, err error) {
	text := slices.Concat(prompt, tokens)
	in, err := vllm{}.request(name, model.DecodeRequest{Prompt: text, MaxTokens: 1, Temperature: 1})
	if err != nil {
		return nil, nil, err
	}
	in.PromptLogprobs = new(int)
	*in.PromptLogprobs = 1
	all, err := s.askApart(ctx, at, in)
	if err != nil {
		return nil, nil, err
	}
	if len(all.Choices) == 0 || len(all.Choices[0].PromptLogprobs) != len(text) {
		return nil, nil, fmt.Errorf("%w: it has no log-probabilities for the %d tokens of a prompt (prompt_logprobs)", ErrReply, len(text))
	}
	for i := len(prompt); i < len(text); i++ {
		likely := all.Choices[0].PromptLogprobs[i]
		of, ok := likely[strconv.Itoa(int(text[i]))]
		if !ok || math.IsNaN(of.Logprob) || math.IsInf(of.Logprob, 0) {
			return nil, nil, fmt.Errorf("%w: token %d of a prompt has no log-probability", ErrReply, i)
		}
		highest := of.Logprob
		for _, other := range likely {
			highest = max(highest, other.Logprob)
		}
		logprobs, best = append(logprobs, float32(of.Logprob)), append(best, float32(highest))
	}
	return logprobs, best, nil
}

// askApart asks a server about an adapter that no step samples from yet. The adapter may
// be wrong, and a repaired one may then be loaded under its name. So the server's cache
// must keep nothing that these weights computed for a prompt and that later calls could
// use.
func (s *Sampler) askApart(ctx context.Context, at *replica, in vllmRequest) (all vllmReply, err error) {
	in.CacheSalt = strconv.FormatUint(rand.Uint64(), 36)
	response, err := s.post(ctx, at.url+"/v1/completions", in) //nolint:bodyclose // readJSON closes it
	if err != nil {
		return all, err
	}
	return all, readJSON(response, &all)
}
