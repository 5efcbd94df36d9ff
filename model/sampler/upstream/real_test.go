package upstream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/files/convert"
	"github.com/fulgurite/fulgurite/model/files/gguf"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/model/sampler/upstream"
)

// The tests of this file run real servers, which .ci/servers installs: the variables hold
// the path of a Python that has vLLM, and that of llama.cpp's server. The servers serve a
// small model with random weights, for which the built-in engine computes the expected
// results.
const (
	vllmVariable        = "FULGURITE_VLLM"
	llamaServerVariable = "FULGURITE_LLAMA_SERVER"
)

const (
	realName = "tiny"
	realStop = 702 // <|im_end|>
)

// published writes the model's directory in the form in which models are published.
func published(t *testing.T) (dir string, codec dialog.Codec, decoder model.Decoder) {
	t.Helper()
	dir = t.TempDir()
	a := model.Architecture{
		VocabSize: 707, HiddenSize: 128, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 64, FeedForward: 128,
		MaxPositions: 2048, RopeTheta: 1e6, NormEpsilon: 1e-6, Tied: true, QKVBias: true,
	}
	weights := a.Init(1)
	require.NoError(t, hf.WriteDirectory(dir, a, weights))
	tokenizer, err := os.ReadFile(filepath.Join("..", "..", "tokenizer", "testdata", "qwen.json"))
	require.NoError(t, err)
	template, err := os.ReadFile(filepath.Join("..", "..", "..", "dialog", "testdata", "templates", "hermes.jinja"))
	require.NoError(t, err)
	for name, text := range map[string]string{
		"tokenizer.json":         string(tokenizer),
		"tokenizer_config.json":  `{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": null, "model_max_length": 2048}`,
		"chat_template.jinja":    string(template),
		"generation_config.json": `{"eos_token_id": [702, 700], "repetition_penalty": 1.5, "presence_penalty": 0.5, "frequency_penalty": 0.5, "temperature": 0.3, "top_k": 5, "top_p": 0.5, "min_p": 0.2}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	bundle, err := dialog.ReadBundle(dir)
	require.NoError(t, err)
	codec, err = bundle.Codec("template:real")
	require.NoError(t, err)
	decoder, err = native.New(native.Options{}).NewDecoder(model.Checkpoint{Architecture: a, Weights: weights})
	require.NoError(t, err)
	t.Cleanup(func() { decoder.Close() })
	return dir, codec, decoder
}

// variable returns an environment variable. If it is not set, the test is skipped.
func variable(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Skip("no " + name)
	}
	return value
}

// startVLLM serves the model until the test ends, and returns the server's address.
func startVLLM(t *testing.T, dir string, more ...string) string {
	t.Helper()
	return startServer(t, []string{"VLLM_ALLOW_RUNTIME_LORA_UPDATING=True", "VLLM_CPU_KVCACHE_SPACE=1", "HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1"},
		variable(t, vllmVariable), append([]string{"-m", "vllm.entrypoints.openai.api_server", "--model", dir, "--served-model-name", realName,
			"--dtype", "float32", "--max-model-len", "2048", "--max-num-seqs", "8", "--enforce-eager", "--enable-lora", "--max-lora-rank", "8",
			"--enable-auto-tool-choice", "--tool-call-parser", "hermes"}, more...)...)
}

// startLlamaServer does what startVLLM does with llama.cpp, which has its own file of the
// model.
func startLlamaServer(t *testing.T, dir string) string {
	t.Helper()
	a, weights, err := hf.ReadDirectory(dir)
	require.NoError(t, err)
	bundle, err := dialog.ReadBundle(dir)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "tiny.gguf")
	require.NoError(t, convert.ToGGUF(file, realName, a, weights, bundle, gguf.F32))
	return serveGGUF(t, file)
}

// serveGGUF serves a file until the test ends, and returns the server's address.
func serveGGUF(t *testing.T, file string) string {
	t.Helper()
	return startServer(t, nil, variable(t, llamaServerVariable), "--model", file, "--alias", realName, "--jinja", "--ctx-size", "2048", "--parallel", "1",
		"--top-k", "0", "--min-p", "0")
}

// startServer runs a server until the test ends.
func startServer(t *testing.T, environment []string, command string, arguments ...string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	require.NoError(t, listener.Close())
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	server := exec.Command(command, append(arguments, "--host", "127.0.0.1", "--port", fmt.Sprint(port))...)
	server.Env = append(os.Environ(), environment...)
	server.Stdout, server.Stderr = log, log
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, server.Start())
	ended := make(chan error, 1)
	go func() {
		ended <- server.Wait()
		close(ended) // also for a second reader
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(tail(log.Name()))
		}
		_ = syscall.Kill(-server.Process.Pid, syscall.SIGKILL)
		if err, first := <-ended; first {
			require.Error(t, err, "it was killed")
		}
		require.NoError(t, log.Close())
	})
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	require.NoError(t, healthy(t.Context(), url, ended), "see the end of %s:\n%s", log.Name(), tail(log.Name()))
	return url
}

// healthy waits until the server answers, but no longer than it runs.
func healthy(ctx context.Context, url string, ended <-chan error) error {
	for {
		response, err := http.Get(url + "/health")
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the server ended: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func tail(path string) string {
	text, _ := os.ReadFile(path)
	return string(text[max(0, len(text)-3000):])
}

func TestARealVLLMMaySampleWarm(t *testing.T) {
	dir, codec, decoder := published(t)
	url := startVLLM(t, dir, "--logprobs-mode", "processed_logprobs")
	s, err := upstream.New(upstream.Options{Type: upstream.VLLM, URLs: []string{url}, Model: realName, Versions: upstream.Adapters, Directory: t.TempDir(), Temperature: 0.7})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	base := model.VersionID{Run: "demo"}
	require.NoError(t, s.Publish(t.Context(), base))
	prompt, err := codec.Prompt([]dialog.Message{{Role: dialog.User, Content: "How long is it?"}}, nil)
	require.NoError(t, err)
	warm := model.DecodeRequest{Prompt: prompt, MaxTokens: 24, Temperature: 0.7, Stop: codec.Stop(), Seed: 7}
	got, _, err := s.Sample(t.Context(), base, warm)
	require.NoError(t, err)
	raw := scored(t, decoder, prompt, got.Tokens) // at temperature 1
	var differ float32
	for i, p := range got.Logprobs {
		differ = max(differ, p-raw[i], raw[i]-p)
	}
	require.Greater(t, differ, float32(0.05), "they are those at 0.7")
}

func TestARealVLLM(t *testing.T) {
	dir, codec, decoder := published(t)
	url := startVLLM(t, dir)
	versions := t.TempDir()
	connect := func(t *testing.T, kind, how string) *upstream.Sampler {
		t.Helper()
		o := upstream.Options{Type: kind, URLs: []string{url}, Model: realName, Versions: how}
		if how == upstream.Adapters {
			o.Directory = versions
		}
		s, err := upstream.New(o)
		require.NoError(t, err)
		t.Cleanup(s.Close)
		return s
	}
	prompt, err := codec.Prompt([]dialog.Message{{Role: dialog.User, Content: "How long is it?"}}, nil)
	require.NoError(t, err)
	r := model.DecodeRequest{Prompt: prompt, MaxTokens: 24, Temperature: 1, Stop: codec.Stop(), Seed: 7}
	base := model.VersionID{Run: "demo"}

	t.Run("tokens have the log-probabilities of the weights", func(t *testing.T) {
		for _, streamed := range []bool{false, true} {
			ask, emitted := r, []int32(nil)
			if streamed {
				ask.Emit = func(token int32, _ float32) { emitted = append(emitted, token) }
			}
			got, _, err := connect(t, upstream.VLLM, upstream.None).Sample(t.Context(), base, ask)
			require.NoError(t, err)
			if streamed {
				require.Equal(t, got.Tokens, emitted)
			}
			want := scored(t, decoder, prompt, got.Tokens)
			require.InDeltaSlice(t, want, got.Logprobs, 2e-3)
		}
	})
	t.Run("the settings of generation_config.json have no say", func(t *testing.T) {
		greedy := r
		greedy.Temperature, greedy.MaxTokens = 0, 48
		want, err := decoder.Decode(t.Context(), greedy)
		require.NoError(t, err)
		got, _, err := connect(t, upstream.VLLM, upstream.None).Sample(t.Context(), base, greedy)
		require.NoError(t, err)
		require.Equal(t, want.Tokens, got.Tokens)

		bare := map[string]any{"model": realName, "prompt": prompt, "max_tokens": 48, "temperature": 0, "stop_token_ids": codec.Stop(), "return_token_ids": true}
		body, err := json.Marshal(bare)
		require.NoError(t, err)
		response, err := http.Post(url+"/v1/completions", "application/json", bytes.NewReader(body))
		require.NoError(t, err)
		defer response.Body.Close()
		var filled struct {
			Choices []struct {
				TokenIDs []int32 `json:"token_ids"`
			} `json:"choices"`
		}
		require.NoError(t, json.NewDecoder(response.Body).Decode(&filled))
		require.NotEqual(t, want.Tokens, filled.Choices[0].TokenIDs, "the server fills in what a request leaves out")
	})
	t.Run("a temperature that its log-probabilities do not heed is refused", func(t *testing.T) {
		warm := r
		warm.Temperature = 0.7
		_, _, err := connect(t, upstream.VLLM, upstream.Adapters).Sample(t.Context(), base, warm)
		require.ErrorIs(t, err, upstream.ErrLogprobs)
		require.ErrorContains(t, err, "--logprobs-mode processed_logprobs")
	})
	t.Run("equal seeds sample equal tokens", func(t *testing.T) {
		s := connect(t, upstream.VLLM, upstream.None)
		first, _, err := s.Sample(t.Context(), base, r)
		require.NoError(t, err)
		second, _, err := s.Sample(t.Context(), base, r)
		require.NoError(t, err)
		require.Equal(t, first.Tokens, second.Tokens)
	})
	t.Run("it stops where it should", func(t *testing.T) {
		s := connect(t, upstream.VLLM, upstream.None)
		finishes := map[string]int{}
		for seed := range uint64(12) {
			ask := r
			ask.Seed, ask.MaxTokens = seed<<1, 400
			got, _, err := s.Sample(t.Context(), base, ask)
			require.NoError(t, err)
			finishes[got.Finish]++
		}
		require.Positive(t, finishes["stop"], finishes)
		ask := r
		ask.MaxTokens = 1
		got, _, err := s.Sample(t.Context(), base, ask)
		require.NoError(t, err)
		require.Len(t, got.Tokens, 1)
	})
	t.Run("stop texts and schemas are kept", func(t *testing.T) {
		s := connect(t, upstream.VLLM, upstream.None)
		ask := r
		ask.MaxTokens = 200
		ask.Form = &model.Form{Schema: []byte(`{"type":"object","properties":{"a":{"enum":["x","y"]}},"required":["a"],"additionalProperties":false}`)}
		got, _, err := s.Sample(t.Context(), base, ask)
		require.NoError(t, err)
		var said struct{ A string }
		text := codec.Text(got.Tokens[:len(got.Tokens)-1])
		require.NoError(t, json.Unmarshal([]byte(text), &said), text)
		require.Contains(t, []string{"x", "y"}, said.A)
		require.NotContains(t, got.Forced, false)

		ask.Form = &model.Form{Stop: []string{"e", "a", "o"}}
		got, _, err = s.Sample(t.Context(), base, ask)
		require.NoError(t, err)
		require.Equal(t, "stop", got.Finish)
	})
	t.Run("a prompt that is too long is the asker's fault", func(t *testing.T) {
		ask := r
		ask.Prompt = make([]int32, 3000)
		_, _, err := connect(t, upstream.VLLM, upstream.None).Sample(t.Context(), base, ask)
		require.ErrorIs(t, err, model.ErrPromptTooLong)
	})
	t.Run("versions are adapters", func(t *testing.T) {
		writeAdapter(t, filepath.Join(versions, "demo-v1"), 1)
		writeAdapter(t, filepath.Join(versions, "demo-v2"), -1)
		s := connect(t, upstream.VLLM, upstream.Adapters)
		logprobs := map[int][]float32{}
		for number := range 3 {
			v := base
			v.Number = number
			require.NoError(t, s.Publish(t.Context(), v))
			ask := r
			ask.MaxTokens = 1
			got, weights, err := s.Sample(t.Context(), v, ask)
			require.NoError(t, err)
			require.NotEmpty(t, weights)
			logprobs[number] = got.Logprobs
		}
		require.NotEqual(t, logprobs[0], logprobs[1])
		require.NotEqual(t, logprobs[1], logprobs[2])
		require.NoError(t, connect(t, upstream.VLLM, upstream.Adapters).Publish(t.Context(), model.VersionID{Run: "demo", Number: 1}), "it is loaded already")
		require.ErrorContains(t, s.Publish(t.Context(), model.VersionID{Run: "demo", Number: 9}), "there is no adapter")
	})
	t.Run("messages are answered in text", func(t *testing.T) { relayedByReal(t, connect(t, upstream.OpenAI, upstream.None), true) })
}

// scored returns the log-probabilities that the weights give the tokens.
func scored(t *testing.T, decoder model.Decoder, prompt, tokens []int32) []float32 {
	t.Helper()
	scorer, ok := decoder.(interface {
		Score(ctx context.Context, prompt, tokens []int32) ([]float32, error)
	})
	require.True(t, ok)
	got, err := scorer.Score(t.Context(), prompt, tokens)
	require.NoError(t, err)
	return got
}

// writeAdapter writes a LoRA adapter that changes the model's replies; with the other
// sign it changes them in the opposite direction.
func writeAdapter(t *testing.T, dir string, sign float32) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	config := `{"peft_type": "LORA", "r": 8, "lora_alpha": 8, "target_modules": ["q_proj"], "base_model_name_or_path": "tiny", "task_type": "CAUSAL_LM", "bias": "none"}`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(config), 0o600))
	var weights model.Weights
	for layer := range 2 {
		for name, scale := range map[string]float32{"lora_A": 1, "lora_B": sign} {
			data := make([]float32, 8*128)
			for i := range data {
				data[i] = scale * float32(i%7-3)
			}
			shape := map[string][]int{"lora_A": {8, 128}, "lora_B": {128, 8}}[name]
			weights = append(weights, model.Tensor{Name: fmt.Sprintf("base_model.model.model.layers.%d.self_attn.q_proj.%s.weight", layer, name), Shape: shape, Data: data})
		}
	}
	file, err := os.Create(filepath.Join(dir, "adapter_model.safetensors"))
	require.NoError(t, err)
	require.NoError(t, hf.WriteSafetensors(file, weights, map[string]string{"format": "pt"}))
	require.NoError(t, file.Close())
}
