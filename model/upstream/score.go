package upstream

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/fulgurite/fulgurite/model"
)

// score asks a server of type VLLM how likely given tokens are after a prompt, at
// temperature 1, and how likely the likeliest one would have been in the place of each.
func (s *Sampler) score(ctx context.Context, at *replica, name string, prompt, tokens []int32) (logprobs, best []float32, err error) {
	text := slices.Concat(prompt, tokens)
	in, err := vllm{}.request(name, model.DecodeRequest{Prompt: text, MaxTokens: 1, Temperature: 1})
	if err != nil {
		return nil, nil, err
	}
	in.PromptLogprobs = new(int)
	*in.PromptLogprobs = 1
	response, err := s.post(ctx, at.url+"/v1/completions", in) //nolint:bodyclose // readJSON closes it
	if err != nil {
		return nil, nil, err
	}
	var all vllmReply
	if err := readJSON(response, &all); err != nil {
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
