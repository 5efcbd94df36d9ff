package convert_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/files/convert"
	"github.com/fulgurite/fulgurite/model/files/gguf"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// golden is what transformers finds in testdata/NAME.gguf.
type golden struct {
	Prompt, Said []int32
	Tensors      map[string]string
}

// unpacked returns a golden GGUF file and what transformers reads from it.
func unpacked(t *testing.T, name string) (path string, g golden) {
	t.Helper()
	path = unpackedFile(t, name+".gguf")
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &g))
	return path, g
}

// unpackedFile decompresses a file of testdata and returns its path.
func unpackedFile(t *testing.T, name string) string {
	t.Helper()
	packed, err := os.Open(filepath.Join("testdata", name+".gz"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = packed.Close() })
	r, err := gzip.NewReader(packed)
	require.NoError(t, err)
	file, err := io.ReadAll(r)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, file, 0o600))
	return path
}

func digest(t *testing.T, numbers []float32) string {
	t.Helper()
	b, err := gguf.Encode(nil, gguf.F32, numbers)
	require.NoError(t, err)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// say returns the n most likely tokens that the model generates after prompt.
func say(t *testing.T, a model.Architecture, w model.Weights, prompt []int32, n int) []int32 {
	t.Helper()
	d, err := native.New(native.Options{}).NewDecoder(model.Checkpoint{Architecture: a, Weights: w})
	require.NoError(t, err)
	defer d.Close()
	reply, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: prompt, MaxTokens: n})
	require.NoError(t, err)
	return reply.Tokens
}

func TestGGUFFilesGiveTheModelThatTransformersFinds(t *testing.T) {
	t.Parallel()
	for name, vocabulary := range map[string]string{"llama": "llama3", "qwen2": "qwen", "qwen3": "qwen"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, g := unpacked(t, name)
			dir := t.TempDir()
			made, err := convert.FromGGUF(path, dir, convert.Options{})
			require.NoError(t, err)
			require.True(t, made.Template)
			a, w, err := hf.ReadDirectory(dir)
			require.NoError(t, err)
			require.Equal(t, made.Architecture, a)
			require.Equal(t, 128, a.MaxPositions)
			require.Equal(t, 5e4, a.RopeTheta)
			require.Equal(t, 1e-6, a.NormEpsilon)
			require.Len(t, w, len(g.Tensors))
			for _, tensor := range w {
				require.Equal(t, g.Tensors[tensor.Name], digest(t, tensor.Data), tensor.Name)
			}
			require.Equal(t, g.Said, say(t, a, w, g.Prompt, len(g.Said)))
			requireSameTokens(t, dir, vocabulary)
			bundle, err := dialog.ReadBundle(dir)
			require.NoError(t, err)
			require.Equal(t, "{% for m in messages %}{{ m.content }}{% endfor %}", bundle.Template)
			require.Subset(t, bundle.Stop, endsOf(vocabulary))
			require.Len(t, bundle.Stop, len(endsOf(vocabulary)))
			require.Len(t, bundle.Special, 2)
		})
	}
}

// endsOf returns the tokens of a golden vocabulary at which llama.cpp ends a reply: those
// that the file's keys name, and others by their texts.
func endsOf(vocabulary string) []int32 {
	if vocabulary == "qwen" {
		return []int32{700, 701, 702}
	}
	return []int32{701, 702, 704, 705}
}

// requireSameTokens compares a directory's tokenizer with the one from which the file's
// vocabulary was made.
func requireSameTokens(t *testing.T, dir, name string) {
	t.Helper()
	load := func(path string) *tokenizer.BPE {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		b, err := tokenizer.FromJSON(text)
		require.NoError(t, err)
		return b
	}
	want, got := load(filepath.Join("..", "..", "tokenizer", "testdata", name+".json")), load(filepath.Join(dir, "tokenizer.json"))
	require.Equal(t, want.SpecialTokens(), got.SpecialTokens())
	require.Equal(t, want.VocabSize(), got.VocabSize())
	for _, text := range []string{
		"the quick brown fox", "In 1999 it's 12345.67  of\n\n\tthem, we'll say", "naïve e\u0301 é 日本語 😀", "<|im_end|><|eot_id|><think>x</think>", " \r\n ",
	} {
		require.Equal(t, want.Encode(text), got.Encode(text), text)
		require.Equal(t, want.EncodeSpecial(text), got.EncodeSpecial(text), text)
	}
}

func TestTypesOfWeightsStayOrAreChosen(t *testing.T) {
	t.Parallel()
	path, _ := unpacked(t, "qwen3") // BF16 and F32 matrices, F32 norms
	kept, chosen := t.TempDir(), t.TempDir()
	var last, total int64
	made, err := convert.FromGGUF(path, kept, convert.Options{Progress: func(d, n int64) { last, total = d, n }})
	require.NoError(t, err)
	require.Equal(t, made.Bytes, last)
	require.Equal(t, made.Bytes, total)
	require.Equal(t, 8, made.Source["BF16"])
	requireTypes(t, kept, "float32", map[hf.DType]int{hf.BF16: 8, hf.F32: 16})
	again := t.TempDir()
	_, err = convert.FromDirectory(kept, again, convert.Options{})
	require.NoError(t, err)
	requireTypes(t, again, "float32", map[hf.DType]int{hf.BF16: 8, hf.F32: 16})
	_, err = convert.FromDirectory(kept, chosen, convert.Options{DType: hf.BF16})
	require.NoError(t, err)
	requireTypes(t, chosen, "bfloat16", map[hf.DType]int{hf.BF16: 24})

	_, want, err := hf.ReadDirectory(kept)
	require.NoError(t, err)
	_, got, err := hf.ReadDirectory(again)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(want, got))
}

func requireTypes(t *testing.T, dir, name string, want map[hf.DType]int) {
	t.Helper()
	s, err := hf.OpenDirectory(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	got := map[hf.DType]int{}
	for _, l := range s.Layouts {
		got[l.DType]++
	}
	require.Equal(t, want, got)
	var config struct {
		DType string `json:"torch_dtype"`
	}
	require.NoError(t, json.Unmarshal(s.Config, &config))
	require.Equal(t, name, config.DType)
}

func TestWhatDoesNotFitIsNotBegun(t *testing.T) {
	t.Parallel()
	path, _ := unpacked(t, "llama")
	dir := t.TempDir()
	_, err := convert.FromGGUF(path, dir, convert.Options{Free: func() (int64, error) { return 100_000, nil }})
	require.ErrorContains(t, err, "the weights take 0 MB, and 0 MB are free")
	require.NoFileExists(t, filepath.Join(dir, model.WeightsFile))
}

// lie returns the path of a golden file in which old is overwritten everywhere.
func lie(t *testing.T, name, old, lie string) string {
	t.Helper()
	path := unpackedFile(t, name+".gguf")
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, lie, len(old))
	require.Contains(t, string(file), old)
	require.NoError(t, os.WriteFile(path, bytes.ReplaceAll(file, []byte(old), []byte(lie)), 0o600))
	return path
}

func TestFilesThatLieAreRefusedByName(t *testing.T) {
	t.Parallel()
	number := func(n byte) string { return string([]byte{4, 0, 0, 0, n, 0, 0, 0}) }
	for name, c := range map[string]struct{ path, want string }{
		"architecture":  {lie(t, "llama", "\x05\x00\x00\x00\x00\x00\x00\x00llama", "\x05\x00\x00\x00\x00\x00\x00\x00gemma"), `general.architecture is "gemma", which is not one of llama`},
		"layers":        {lie(t, "llama", "llama.block_count"+number(2), "llama.block_count"+number(3)), "tensor blk.2.attn_norm.weight is absent"},
		"fewer layers":  {lie(t, "llama", "llama.block_count"+number(2), "llama.block_count"+number(1)), "tensor blk.1.attn_norm.weight belongs to no part"},
		"heads":         {lie(t, "llama", "head_count"+number(4), "head_count"+number(8)), "tensor blk.0.attn_q.weight has shape [64 64], the metadata makes it [128 64]"},
		"no heads":      {lie(t, "llama", "head_count"+number(4), "head_count"+number(0)), "heads is 0"},
		"type of value": {lie(t, "llama", "head_count"+number(4), "head_count\x06"+number(4)[1:]), "llama.attention.head_count is float32, want a whole number"},
		"values":        {lie(t, "llama", "value_length"+number(16), "value_length"+number(8)), "llama.attention.value_length is 8"},
		"partial rope":  {lie(t, "llama", "dimension_count"+number(16), "dimension_count"+number(8)), "partial rotary embedding"},
		"tensor's name": {lie(t, "llama", "blk.1.attn_k.weight", "blk.1.attn_z.weight"), "tensor blk.1.attn_k.weight is absent"},
		"pre-tokenizer": {lie(t, "llama", "llama-bpe", "llama-spm"), `tokenizer.ggml.pre is "llama-spm", which is not one of gpt-2, smollm`},
		"tokenizer":     {lie(t, "llama", "gpt2", "t5xx"), `tokenizer.ggml.model is "t5xx"`},
		"scores":        {lie(t, "sentencepiece", "tokenizer.ggml.scores", "tokenizer.ggml.scorez"), "tokenizer.ggml.scores has 0 elements, tokenizer.ggml.tokens has 1536"},
		"end":           {lie(t, "llama", "eos_token_id"+number(0xbd)[:5]+"\x02", "eos_token_id"+number(0xbd)[:5]+"\x05"), "tokenizer.ggml.eos_token_id is 1469 of 712 tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := convert.FromGGUF(c.path, t.TempDir(), convert.Options{})
			require.ErrorContains(t, err, "import "+c.path)
			require.ErrorContains(t, err, c.want)
		})
	}
}
