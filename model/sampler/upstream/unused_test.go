package upstream_test

import (
	"fmt"
	"math"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/upstream"
)

// sparse returns a sampler of a model whose ids 7, 8 and 11 have no token.
func sparse(t *testing.T, kind, versions string, s *server) *upstream.Sampler {
	t.Helper()
	sampler, err := upstream.New(upstream.Options{
		Type: kind, URLs: []string{s.URL}, Model: "base", Versions: versions, Directory: t.TempDir(), Unused: "7-8,11", Write: writeVersion,
	})
	require.NoError(t, err)
	t.Cleanup(sampler.Close)
	return sampler
}

// biased answers like a server whose model prefers id 7 to all others, which it samples
// unless logit_bias makes it less likely. It reports log-probabilities of the distribution
// that it samples from, or those before the biases.
func (s *server) biased(processed bool) {
	s.turn = func(w http.ResponseWriter, _ *http.Request, body map[string]any) bool {
		asked, ids := body, body["prompt"]
		if params, ok := body["sampling_params"].(map[string]any); ok {
			asked, ids = params, body["input_ids"]
		}
		if ids == nil {
			return false
		}
		biases, _ := asked["logit_bias"].(map[string]any)
		logits := map[int]float64{4: 0, 7: 2, 8: 1, stopToken: -1}
		sampled := map[int]float64{}
		for id, z := range logits {
			if bias, ok := biases[fmt.Sprint(id)].(float64); ok {
				z += bias
			}
			sampled[id] = z / asked["temperature"].(float64)
		}
		if allowed, ok := asked["allowed_token_ids"].([]any); ok {
			sampled = map[int]float64{int(allowed[0].(float64)): 0}
			logits[int(allowed[0].(float64))] = 0
		}
		best := stopToken
		for id, z := range sampled {
			if z > sampled[best] || len(sampled) == 1 {
				best = id
			}
		}
		from := logits
		if processed {
			from = sampled
		}
		total := 0.0
		for _, z := range from {
			total += math.Exp(z)
		}
		p := from[best] - math.Log(total)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, encoded(map[string]any{
			"choices":   []any{map[string]any{"token_ids": []int{best}, "logprobs": map[string]any{"token_logprobs": []any{p}}, "finish_reason": "length"}},
			"meta_info": map[string]any{"finish_reason": map[string]any{"type": "length"}, "output_token_logprobs": []any{[]any{p, best, nil}}, "weight_version": s.version},
		}))
		return true
	}
}

func TestServersLeaveOutIDsWithoutAToken(t *testing.T) {
	t.Parallel()
	for kind, versions := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			of := model.VersionID{Run: "demo"}
			s := newServer(t)
			s.biased(true)
			got, _, err := sparse(t, kind, versions, s).Sample(t.Context(), of, request())
			require.NoError(t, err)
			require.Equal(t, []int32{4}, got.Tokens)
			require.InDelta(t, -math.Log(1+math.Exp(-1)), got.Logprobs[0], 1e-6, "among the ids with a token, as the trainer computes it")
			asked := s.requests[len(s.requests)-1]
			if kind == upstream.SGLang {
				asked = asked["sampling_params"].(map[string]any)
			}
			require.Equal(t, map[string]any{"7": -100.0, "8": -100.0, "11": -100.0}, asked["logit_bias"])

			// Another server of the same model has nothing to leave out.
			all := newServer(t)
			_, _, err = connect(t, kind, versions, all).Sample(t.Context(), version, request())
			require.NoError(t, err)
			require.NotContains(t, encoded(all.requests), "logit_bias")
		})
	}
}

func TestLogprobsThatCountIDsWithoutATokenAreRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.biased(false)
	_, _, err := sparse(t, upstream.VLLM, upstream.Adapters, s).Sample(t.Context(), model.VersionID{Run: "demo"}, request())
	require.ErrorIs(t, err, upstream.ErrLogprobs)
	require.ErrorContains(t, err, "start it with --logprobs-mode processed_logprobs (vLLM) or without RETURN_ORIGINAL_LOGPROB (SGLang): 3 rows of the model's vocabulary have no token")
}

func TestAnIDWithoutATokenIsNoReply(t *testing.T) {
	t.Parallel()
	for kind := range kinds() {
		s := newServer(t) // it counts up from the prompt, whatever it is told
		_, _, err := sparse(t, kind, upstream.None, s).Sample(t.Context(), version, model.DecodeRequest{Prompt: []int32{1, 6}, MaxTokens: 8, Temperature: 1, Stop: []int32{stopToken}})
		require.ErrorIs(t, err, upstream.ErrReply)
		require.ErrorContains(t, err, "token 0 has the id 7, which no token has")
	}
}

func TestMoreIDsThanAServerLeavesOutAreRefused(t *testing.T) {
	t.Parallel()
	o := upstream.Options{Type: upstream.VLLM, URLs: []string{"http://localhost"}, Versions: upstream.None, Unused: "100-1124"}
	_, err := upstream.New(o)
	require.ErrorContains(t, err, "1025 rows of the model's vocabulary have no token, and a server of type vllm can be told to leave out 1024")
	o.Type = upstream.SGLang
	s, err := upstream.New(o)
	require.NoError(t, err)
	s.Close()
}
