package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/fulgurite/fulgurite/model"
)

// vllm is vLLM's OpenAI-compatible server. It takes completions of token ids, and returns
// ids if return_token_ids is set.
type vllm struct{ biases biases }

// vllmRequest is the body of POST /v1/completions.
type vllmRequest struct {
	Model       string  `json:"model"`
	Prompt      []int32 `json:"prompt"`
	MaxTokens   int     `json:"max_tokens"`
	Temperature float64 `json:"temperature"`
	TopP        float64 `json:"top_p"`
	TopK        int     `json:"top_k"`
	neutral
	MinTokens int   `json:"min_tokens"`
	Seed      int64 `json:"seed"`
	Stream    bool  `json:"stream,omitempty"`
	// Logprobs 0 asks for the log-probability of the sampled token only.
	Logprobs int `json:"logprobs"`
	// PromptLogprobs asks for the log-probabilities of the prompt's tokens, and of that
	// many of the likeliest tokens in the place of each.
	PromptLogprobs *int    `json:"prompt_logprobs,omitempty"`
	ReturnTokenIDs bool    `json:"return_token_ids"`
	StopTokenIDs   []int32 `json:"stop_token_ids,omitempty"`
	KeepStop       bool    `json:"include_stop_str_in_output"`
	SkipSpecial    bool    `json:"skip_special_tokens"`
	AddSpecial     bool    `json:"add_special_tokens"`
	// IgnoreEnd makes only StopTokenIDs end a reply, and not also the tokens that the
	// server's generation_config.json names.
	IgnoreEnd bool `json:"ignore_eos"`
	// CacheSalt makes sure that other requests do not use what the server caches for this
	// prompt.
	CacheSalt string `json:"cache_salt,omitempty"`
	// Structured makes the text conform to a JSON Schema.
	Structured *vllmStructured `json:"structured_outputs,omitempty"`
	// Allowed lists the only tokens that may be sampled; if it is empty, all may.
	Allowed   []int32 `json:"allowed_token_ids,omitempty"`
	LogitBias biases  `json:"logit_bias,omitempty"`
}

type vllmStructured struct {
	JSON json.RawMessage `json:"json,omitempty"`
}

// vllmReply is a reply, or one event of it.
type vllmReply struct {
	PromptTokenIDs []int32 `json:"prompt_token_ids"`
	Choices        []struct {
		PromptTokenIDs []int32 `json:"prompt_token_ids"`
		// PromptLogprobs holds log-probabilities by token id; the first token has none.
		PromptLogprobs []map[string]struct {
			Logprob float64 `json:"logprob"`
		} `json:"prompt_logprobs"`
		TokenIDs []int32 `json:"token_ids"`
		Logprobs *struct {
			Tokens []*float64 `json:"token_logprobs"`
		} `json:"logprobs"`
		FinishReason string `json:"finish_reason"`
		// Provider is where a LiteLLM proxy puts fields that it does not know.
		Provider struct {
			TokenIDs []int32 `json:"token_ids"`
		} `json:"provider_specific_fields"`
	} `json:"choices"`
	Error json.RawMessage `json:"error"`
}

func (p vllm) request(name string, r model.DecodeRequest) (vllmRequest, error) {
	out := vllmRequest{
		Model: name, Prompt: r.Prompt, MaxTokens: r.MaxTokens, Temperature: r.Temperature, TopP: nucleus(r.TopP), TopK: -1, neutral: neutrals(),
		Seed: signed(r.Seed), Stream: r.Emit != nil, ReturnTokenIDs: true, StopTokenIDs: r.Stop, KeepStop: true, IgnoreEnd: true, LogitBias: p.biases,
	}
	if f := r.Form; f != nil {
		if f.Call {
			return out, fmt.Errorf("%w: tool_choice can't be forced at this server", model.ErrForm)
		}
		if len(f.Schema) > 0 {
			out.Structured = &vllmStructured{JSON: f.Schema}
		}
	}
	return out, nil
}

func (p vllm) sample(ctx context.Context, s *Sampler, at *replica, name string, r model.DecodeRequest) (reply, error) {
	in, err := p.request(name, r)
	if err != nil {
		return reply{}, err
	}
	response, err := s.post(ctx, at.url+"/v1/completions", in) //nolint:bodyclose // whoever reads it closes it
	if err != nil {
		return reply{}, err
	}
	var out reply
	if !in.Stream {
		var all vllmReply
		if err := readJSON(response, &all); err != nil {
			return reply{}, err
		}
		return out, all.addTo(&out, nil)
	}
	err = readEvents(response, func(data []byte) error {
		var event vllmReply
		if err := decodeObject(data, &event); err != nil {
			return err
		}
		return event.addTo(&out, r.Emit)
	})
	return out, err
}

// addTo adds an event to the reply so far.
func (v *vllmReply) addTo(out *reply, emit func(int32, float32)) error {
	if len(v.Error) > 0 && string(v.Error) != "null" {
		return fmt.Errorf("%w: %.300s", &refusal{http.StatusInternalServerError, string(v.Error)}, v.Error)
	}
	if out.prompt == nil && v.PromptTokenIDs != nil {
		out.prompt = v.PromptTokenIDs
	}
	if len(v.Choices) == 0 {
		return nil // usage
	}
	c := v.Choices[0]
	if out.prompt == nil && c.PromptTokenIDs != nil {
		out.prompt = c.PromptTokenIDs
	}
	if c.TokenIDs == nil {
		c.TokenIDs = c.Provider.TokenIDs
	}
	var logprobs []*float64
	if c.Logprobs != nil {
		logprobs = c.Logprobs.Tokens
	}
	if c.FinishReason != "" {
		out.completion.Finish = c.FinishReason
	}
	return out.extend(c.TokenIDs, logprobs, emit)
}

// extend adds tokens with their log-probabilities.
func (r *reply) extend(tokens []int32, logprobs []*float64, emit func(int32, float32)) error {
	if len(tokens) != len(logprobs) {
		return fmt.Errorf("%w: %d token ids and %d log-probabilities", ErrReply, len(tokens), len(logprobs))
	}
	for i, t := range tokens {
		if logprobs[i] == nil {
			return fmt.Errorf("%w: token %d has no log-probability", ErrReply, len(r.completion.Tokens))
		}
		p := float32(*logprobs[i])
		r.completion.Tokens, r.completion.Logprobs = append(r.completion.Tokens, t), append(r.completion.Logprobs, p)
		if emit != nil {
			emit(t, p)
		}
	}
	return nil
}

// load adds an adapter under its own name.
func (vllm) load(ctx context.Context, s *Sampler, at *replica, name, directory string) error {
	response, err := s.post(ctx, at.url+"/v1/load_lora_adapter", map[string]any{"lora_name": name, "lora_path": directory})
	if err != nil {
		if alreadyLoaded(err) {
			return nil
		}
		return fmt.Errorf("load adapter %s: %w", name, err)
	}
	return response.Body.Close()
}
