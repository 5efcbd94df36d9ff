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

// configured returns the settings that the generation_config.json of a published model
// may have, each with the value that changes nothing.
func configured() map[string]float64 {
	return map[string]float64{
		"temperature": 1, "top_p": 1, "top_k": -1, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0,
	}
}

// filling answers like a server whose model has a generation_config.json: if a request
// leaves out a setting, the model's value applies, and the tokens are others.
func (s *server) filling(minimum string) {
	s.turn = func(w http.ResponseWriter, _ *http.Request, body map[string]any) bool {
		asked, ok := body["sampling_params"].(map[string]any)
		if !ok {
			asked = body
		}
		for name, value := range configured() {
			if got, given := asked[name]; !given || got != value {
				http.Error(w, fmt.Sprintf(`{"error":{"message":"%s is %v, and what is sampled is not what is asked for"}}`, name, got), http.StatusBadRequest)
				return true
			}
		}
		if asked[minimum] != 0.0 || asked["n"] != 1.0 {
			http.Error(w, "the length or the number of replies is the server's", http.StatusBadRequest)
			return true
		}
		return false
	}
}

func TestAServersOwnSettingsHaveNoSay(t *testing.T) {
	t.Parallel()
	for kind, versions := range kinds() {
		for _, streamed := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, streamed), func(t *testing.T) {
				t.Parallel()
				s := newServer(t)
				sampler := connect(t, kind, versions, s)
				require.NoError(t, sampler.Publish(t.Context(), version))
				s.filling(map[string]string{upstream.VLLM: "min_tokens", upstream.SGLang: "min_new_tokens"}[kind])
				ask := request()
				if streamed {
					ask.Emit = func(int32, float32) {}
				}
				got, _, err := sampler.Sample(t.Context(), version, ask)
				require.NoError(t, err)
				got.Server = "" // either of them
				require.Equal(t, want(), got)
				asked := s.requests[len(s.requests)-1]
				if kind == upstream.VLLM {
					require.Equal(t, true, asked["ignore_eos"], "the codec's stops end a reply, and no others")
				} else {
					require.Equal(t, false, asked["sampling_params"].(map[string]any)["ignore_eos"], "there it would ignore the codec's stops too")
				}
			})
		}
	}
}

// heeding answers with log-probabilities of a model that prefers each token to the next
// by one nat: at the requested temperature, or always at 1.
func (s *server) heeding(processed bool) {
	s.turn = func(w http.ResponseWriter, _ *http.Request, body map[string]any) bool {
		asked, ids := body, body["prompt"]
		if params, ok := body["sampling_params"].(map[string]any); ok {
			asked, ids = params, body["input_ids"]
		}
		if ids == nil {
			return false
		}
		temperature := asked["temperature"].(float64)
		if !processed {
			temperature = 1
		}
		if allowed, ok := asked["allowed_token_ids"].([]any); ok {
			p := -2.5
			if processed {
				p = 0 // no other token is allowed
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, encoded(map[string]any{"choices": []any{
				map[string]any{"token_ids": allowed, "logprobs": map[string]any{"token_logprobs": []any{p}}, "finish_reason": "length"},
			}}))
			return true
		}
		total, logprobs, pairs, tokens := 0.0, []any{}, []any{}, []int{4, 5, stopToken}
		for i := range tokens {
			total += math.Exp(-float64(i) / temperature)
		}
		for i, id := range tokens {
			p := -float64(i)/temperature - math.Log(total)
			logprobs, pairs = append(logprobs, p), append(pairs, []any{p, id, nil})
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, encoded(map[string]any{
			"choices":   []any{map[string]any{"token_ids": tokens, "logprobs": map[string]any{"token_logprobs": logprobs}, "finish_reason": "stop"}},
			"meta_info": map[string]any{"finish_reason": map[string]any{"type": "stop"}, "output_token_logprobs": pairs, "weight_version": s.version},
		}))
		return true
	}
}

func TestATemperatureThatLogprobsDoNotHeedIsRefused(t *testing.T) {
	t.Parallel()
	for kind, versions := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			warm := request()
			warm.Temperature = 0.7
			greedy := request()
			greedy.Temperature = 0

			s := newServer(t)
			s.heeding(false)
			sampler := connect(t, kind, versions, s)
			_, _, err := sampler.Sample(t.Context(), version, request())
			require.NoError(t, err, "at 1 they are the same")
			_, _, err = sampler.Sample(t.Context(), version, greedy)
			require.NoError(t, err, "greedy replies are not trained")
			_, _, err = sampler.Sample(t.Context(), version, warm)
			require.ErrorIs(t, err, upstream.ErrLogprobs)
			require.ErrorContains(t, err, "--logprobs-mode processed_logprobs")

			s = newServer(t)
			s.heeding(true)
			sampler = connect(t, kind, versions, s)
			for range 3 {
				_, _, err = sampler.Sample(t.Context(), version, warm)
				require.NoError(t, err)
			}
			path := map[string]string{upstream.VLLM: "/v1/completions", upstream.SGLang: "/generate"}[kind]
			require.Len(t, s.asked(path), 4, "it is found out once")
		})
	}
}

func TestAVersionIsNotPublishedForATemperatureThatLogprobsDoNotHeed(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.heeding(false)
	o := upstream.Options{Type: upstream.VLLM, URLs: []string{s.URL}, Model: "base", Versions: upstream.Adapters, Directory: t.TempDir(), Temperature: 0.7}
	sampler, err := upstream.New(o)
	require.NoError(t, err)
	t.Cleanup(sampler.Close)
	require.ErrorIs(t, sampler.Publish(t.Context(), model.VersionID{Run: "demo"}), upstream.ErrLogprobs)
	s.mu.Lock()
	s.heeding(true)
	s.mu.Unlock()
	require.NoError(t, sampler.Publish(t.Context(), model.VersionID{Run: "demo"}), "once it was started again")
}
