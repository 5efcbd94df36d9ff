package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/fulgurite/fulgurite/model"
)

// sglang is SGLang's own API: requests hold token ids, and replies hold token ids with
// log-probabilities.
type sglang struct{ biases biases }

// sglangRequest is the body of POST /generate.
type sglangRequest struct {
	InputIDs      []int32        `json:"input_ids"`
	Sampling      sglangSampling `json:"sampling_params"`
	ReturnLogprob bool           `json:"return_logprob"`
	Stream        bool           `json:"stream,omitempty"`
}

type sglangSampling struct {
	MaxNewTokens int     `json:"max_new_tokens"`
	Temperature  float64 `json:"temperature"`
	TopP         float64 `json:"top_p"`
	TopK         int     `json:"top_k"`
	neutral
	MinNewTokens int     `json:"min_new_tokens"`
	IgnoreEnd    bool    `json:"ignore_eos"` // if true, the server would ignore StopTokenIDs as well
	StopTokenIDs []int32 `json:"stop_token_ids,omitempty"`
	SkipSpecial  bool    `json:"skip_special_tokens"`
	SpaceSpecial bool    `json:"spaces_between_special_tokens"`
	NoStopTrim   bool    `json:"no_stop_trim"`
	Schema       string  `json:"json_schema,omitempty"`
	Seed         int64   `json:"sampling_seed"`
	LogitBias    biases  `json:"logit_bias,omitempty"`
}

// sglangReply is a reply, or an event of a stream, which repeats everything before it.
type sglangReply struct {
	Meta struct {
		FinishReason *struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"finish_reason"`
		// Logprobs holds pairs of log-probability and token id, perhaps followed by the
		// token's text.
		Logprobs [][]any `json:"output_token_logprobs"`
		Version  string  `json:"weight_version"`
	} `json:"meta_info"`
	Error json.RawMessage `json:"error"`
}

func (p sglang) sample(ctx context.Context, s *Sampler, at *replica, _ string, r model.DecodeRequest) (reply, error) {
	in := sglangRequest{InputIDs: r.Prompt, ReturnLogprob: true, Stream: r.Emit != nil, Sampling: sglangSampling{
		MaxNewTokens: r.MaxTokens, Temperature: r.Temperature, TopP: nucleus(r.TopP), TopK: -1, neutral: neutrals(), StopTokenIDs: r.Stop, NoStopTrim: true, Seed: signed(r.Seed), LogitBias: p.biases,
	}}
	if f := r.Form; f != nil {
		if f.Call {
			return reply{}, fmt.Errorf("%w: tool_choice can't be forced at this server", model.ErrForm)
		}
		in.Sampling.Schema = string(f.Schema)
	}
	response, err := s.post(ctx, at.url+"/generate", in) //nolint:bodyclose // whoever reads it closes it
	if err != nil {
		return reply{}, err
	}
	var out reply
	if !in.Stream {
		var all sglangReply
		if err := readJSON(response, &all); err != nil {
			return reply{}, err
		}
		return out, all.addTo(&out, nil)
	}
	err = readEvents(response, func(data []byte) error {
		var event sglangReply
		if err := decodeObject(data, &event); err != nil {
			return err
		}
		return event.addTo(&out, r.Emit)
	})
	return out, err
}

// addTo adds the tokens of an event that earlier events did not have.
func (g *sglangReply) addTo(out *reply, emit func(int32, float32)) error {
	if len(g.Error) > 0 && string(g.Error) != "null" {
		return &refusal{http.StatusInternalServerError, string(g.Error)}
	}
	out.version = g.Meta.Version
	if f := g.Meta.FinishReason; f != nil {
		out.completion.Finish = f.Type
		if f.Type == "abort" {
			return &refusal{http.StatusServiceUnavailable, "the server broke off: " + f.Message}
		}
	}
	known := len(out.completion.Tokens)
	if len(g.Meta.Logprobs) < known {
		return fmt.Errorf("%w: %d tokens after %d: it has to repeat them in each event", ErrReply, len(g.Meta.Logprobs), known)
	}
	for i, pair := range g.Meta.Logprobs {
		token, logprob, err := pairOf(pair)
		if err != nil {
			return fmt.Errorf("%w: token %d: %w", ErrReply, i, err)
		}
		if i < known {
			if token != out.completion.Tokens[i] {
				return fmt.Errorf("%w: token %d was %d, is %d", ErrReply, i, out.completion.Tokens[i], token)
			}
			continue
		}
		if err := out.extend([]int32{token}, []*float64{&logprob}, emit); err != nil {
			return err
		}
	}
	return nil
}

func pairOf(pair []any) (int32, float64, error) {
	if len(pair) < 2 {
		return 0, 0, errors.New("no pair of log-probability and id")
	}
	logprob, ok := pair[0].(float64)
	id, isNumber := pair[1].(float64)
	if !ok || !isNumber || id != math.Trunc(id) || id < 0 || id > math.MaxInt32 {
		return 0, 0, fmt.Errorf("%v is not a pair of log-probability and id", pair)
	}
	return int32(id), logprob, nil
}

// load makes the server read other weights; the server lets requests wait while it does.
func (sglang) load(ctx context.Context, s *Sampler, at *replica, name, directory string) error {
	response, err := s.post(ctx, at.url+"/update_weights_from_disk", map[string]any{"model_path": directory, "weight_version": name}) //nolint:bodyclose // readJSON closes it
	if err != nil {
		return fmt.Errorf("load %s: %w", name, err)
	}
	var out struct {
		Success bool   `json:"success"`
		Message string `json:"message"`
	}
	if err := readJSON(response, &out); err != nil {
		return fmt.Errorf("load %s: %w", name, err)
	}
	if !out.Success {
		return fmt.Errorf("%w: load %s: %s", ErrVersion, name, out.Message)
	}
	return nil
}

// alreadyLoaded recognises an adapter that an earlier process has loaded.
func alreadyLoaded(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.status == http.StatusBadRequest && strings.Contains(r.message, "already")
}

func nucleus(topP float64) float64 {
	if topP == 0 {
		return 1
	}
	return topP
}

// signed returns a seed that servers accept: not every server reads unsigned numbers of
// 64 bits.
func signed(seed uint64) int64 { return int64(seed >> 1) } //nolint:gosec // the highest bit is gone
