package upstream_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/files/convert"
	"github.com/fulgurite/fulgurite/model/files/gguf"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// TestARealLlamaServerSaysWhatExportedModelsSay compares greedy tokens. The server rounds
// the inputs of products to the type of the matrices, so the comparison of one reply ends
// where no token is clearly the most likely. After a file was written and read, the
// built-in engine gives, to the bit, the numbers that it gives when it holds the base in
// that precision.
func TestARealLlamaServerSaysWhatExportedModelsSay(t *testing.T) {
	plain := model.Architecture{
		VocabSize: 708, HiddenSize: 128, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 32, FeedForward: 128,
		MaxPositions: 2048, RopeTheta: 1e5, NormEpsilon: 1e-5, Tied: true,
	}
	scaled, biased, normed := plain, plain, plain
	scaled.RopeScaling = model.RopeScaling{Factor: 8, LowFrequencyFactor: 1, HighFrequencyFactor: 4, OriginalPositions: 256}
	biased.QKVBias, biased.Tied, normed.QKNorm = true, false, true
	for name, a := range map[string]model.Architecture{"llama": plain, "llama3": scaled, "qwen2": biased, "qwen3": normed} {
		for _, kind := range []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0} {
			t.Run(name+" "+kind.String(), func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "tiny.gguf")
				require.NoError(t, convert.ToGGUF(file, realName, a, loud(a), qwenBundle(t), kind))
				url, decoder, held := serveGGUF(t, file), decoderOf(t, file), decoderHolding(t, a, kind)
				equal, others := 0, 0
				for start := range int32(20) {
					prompt := make([]int32, 40)
					for i := range prompt {
						prompt[i] = (start*97 + int32(i*i)*31) % 700
					}
					want, err := decoder.Decode(t.Context(), model.DecodeRequest{Prompt: prompt, MaxTokens: 16})
					require.NoError(t, err)
					if held != nil {
						same, err := held.Decode(t.Context(), model.DecodeRequest{Prompt: prompt, MaxTokens: 16})
						require.NoError(t, err)
						require.Equal(t, want, same, "the base in %s", kind)
					}
					said := complete(t, url, prompt)
					for i := 0; i < len(said) && want.Logprobs[i] > likely; i++ {
						if want.Tokens[i] != said[i] {
							t.Logf("prompt %d, token %d: %d with log-probability %.3f, not %d", start, i, want.Tokens[i], want.Logprobs[i], said[i])
							others++
							break
						}
						equal++
					}
				}
				t.Log(equal, "tokens are equal")
				require.Greater(t, equal, 30)
				if kind == gguf.Q8_0 { // the server also rounds the inputs of products to eight bits
					require.LessOrEqual(t, 20*others, equal)
					return
				}
				require.Zero(t, others)
			})
		}
	}
}

// TestARealLlamaServerReadsAVocabularyOfSentencePiece compares the tokens of hard texts,
// and greedy ones.
func TestARealLlamaServerReadsAVocabularyOfSentencePiece(t *testing.T) {
	dir, packed := t.TempDir(), filepath.Join("..", "..", "files", "convert", "testdata", "sentencepiece.gguf.gz")
	_, err := convert.FromGGUF(unpack(t, packed), dir, convert.Options{})
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	require.NoError(t, err)
	a := model.Architecture{
		VocabSize: 1536, HiddenSize: 128, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 32, FeedForward: 128,
		MaxPositions: 2048, RopeTheta: 1e4, NormEpsilon: 1e-5, Tied: true,
	}
	b := dialog.Bundle{
		Tokenizer: text, Template: "{{ bos_token }}{% for m in messages %}{{ '[' + m.role + '] ' + m.content + eos_token }}{% endfor %}{% if add_generation_prompt %}{{ '[assistant] ' }}{% endif %}",
		Special: map[string]string{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
	}
	file := filepath.Join(t.TempDir(), "tiny.gguf")
	require.NoError(t, convert.ToGGUF(file, realName, a, loud(a), b, gguf.F32))
	url, decoder := serveGGUF(t, file), decoderOf(t, file)

	ours, err := tokenizer.FromJSON(text)
	require.NoError(t, err)
	var golden [][2]json.RawMessage
	said, err := os.ReadFile(unpack(t, filepath.Join("..", "..", "files", "convert", "testdata", "sentencepiece-golden.json.gz")))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(said, &golden))
	texts := []string{"<s>[INST] hello [/INST]", "a<tool> b</s><s> c", "<tool><tool>x"}
	for _, pair := range golden {
		var text string
		require.NoError(t, json.Unmarshal(pair[0], &text))
		texts = append(texts, text)
	}
	other := 0
	for _, text := range texts {
		var got struct {
			Tokens []int32 `json:"tokens"`
		}
		post(t, url+"/tokenize", map[string]any{"content": text, "add_special": false, "parse_special": true}, &got)
		if want := ours.EncodeSpecial(text); !slices.Equal(want, got.Tokens) {
			t.Errorf("%q: %d, want %d", text, got.Tokens, want)
			if other++; other > 10 {
				t.FailNow()
			}
		}
	}
	t.Log(len(texts), "texts have equal tokens")

	equal := 0
	for start := range 10 {
		prompt := ours.EncodeSpecial("<s>" + texts[100*start])
		want, err := decoder.Decode(t.Context(), model.DecodeRequest{Prompt: prompt, MaxTokens: 16})
		require.NoError(t, err)
		said := complete(t, url, prompt)
		for i := 0; i < len(said) && want.Logprobs[i] > likely; i++ {
			require.Equal(t, want.Tokens[i], said[i], "prompt %d, token %d", start, i)
			equal++
		}
	}
	t.Log(equal, "tokens are equal")
	require.Greater(t, equal, 30)
}

// likely is the log-probability above which a token is clearly the most likely one.
const likely = -0.5

// loud returns random weights whose logits differ clearly, and depend more on what the
// layers compute than on the last token.
func loud(a model.Architecture) model.Weights {
	w := a.Init(3)
	for _, t := range w {
		scale := float32(1)
		switch {
		case strings.HasSuffix(t.Name, "embed_tokens.weight"), strings.HasSuffix(t.Name, "lm_head.weight"):
			scale = 24
		case strings.HasSuffix(t.Name, "o_proj.weight"), strings.HasSuffix(t.Name, "down_proj.weight"):
			scale = 30
		}
		for i := range t.Data {
			t.Data[i] *= scale
		}
	}
	return w
}

func qwenBundle(t *testing.T) dialog.Bundle {
	t.Helper()
	tokenizer, err := os.ReadFile(filepath.Join("..", "..", "tokenizer", "testdata", "qwen.json"))
	require.NoError(t, err)
	template, err := os.ReadFile(filepath.Join("..", "..", "..", "dialog", "testdata", "templates", "hermes.jinja"))
	require.NoError(t, err)
	return dialog.Bundle{Tokenizer: tokenizer, Template: string(template), Special: map[string]string{"eos_token": "<|im_end|>"}}
}

// decoderOf returns a decoder that samples from the file's own weights.
func decoderOf(t *testing.T, file string) model.Decoder {
	t.Helper()
	dir := t.TempDir()
	_, err := convert.FromGGUF(file, dir, convert.Options{})
	require.NoError(t, err)
	a, w, err := hf.ReadDirectory(dir)
	require.NoError(t, err)
	d, err := native.New(native.Options{}).NewDecoder(model.Checkpoint{Architecture: a, Weights: w})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

// decoderHolding returns a decoder that samples through a new adapter, which changes
// nothing, over the loud weights in a precision. It returns nil if bases can't be held in
// that precision.
func decoderHolding(t *testing.T, a model.Architecture, kind gguf.Type) model.Decoder {
	t.Helper()
	precision, ok := map[gguf.Type]model.Precision{gguf.F32: model.F32, gguf.BF16: model.BF16, gguf.Q8_0: model.Q8_0}[kind]
	if !ok {
		return nil
	}
	l := model.LoRA{Rank: 1, Alpha: 1, Targets: model.LoRATargets(), BasePrecision: precision}
	base := &model.Base{Digest: "loud", Architecture: a, Each: func(use func(model.Tensor) error) error {
		for _, w := range loud(a) {
			if err := use(w); err != nil {
				return err
			}
		}
		return nil
	}}
	d, err := native.New(native.Options{}).NewDecoder(model.Checkpoint{Architecture: a, Adapter: &model.Adapter{LoRA: l, Base: base}, Weights: a.InitAdapter(l, 1)})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

// complete asks the server for its most likely tokens.
func complete(t *testing.T, url string, prompt []int32) []int32 {
	t.Helper()
	var reply struct {
		Tokens []int32 `json:"tokens"`
	}
	post(t, url+"/completion", map[string]any{"prompt": prompt, "n_predict": 16, "temperature": 0, "return_tokens": true, "cache_prompt": false, "samplers": []string{"temperature"}}, &reply)
	return reply.Tokens
}

// post sends a question to a server and reads its reply.
func post(t *testing.T, url string, question map[string]any, reply any) {
	t.Helper()
	ask, err := json.Marshal(question)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(ask))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.NoError(t, json.NewDecoder(response.Body).Decode(reply))
}

// unpack decompresses a file and returns the path of the result.
func unpack(t *testing.T, packed string) string {
	t.Helper()
	f, err := os.Open(packed)
	require.NoError(t, err)
	defer f.Close()
	r, err := gzip.NewReader(f)
	require.NoError(t, err)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(packed), ".gz"))
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}
