package convert_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/convert"
	"github.com/fulgurite/fulgurite/model/files/gguf"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// bundle returns a tokenizer with a template that fits it.
func bundle(t *testing.T, tokenizer, template, eos string) dialog.Bundle {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "tokenizer", "testdata", tokenizer+".json"))
	require.NoError(t, err)
	jinja, err := os.ReadFile(filepath.Join("..", "..", "..", "dialog", "testdata", "templates", template+".jinja"))
	require.NoError(t, err)
	return dialog.Bundle{Tokenizer: text, Template: string(jinja), ToolTemplate: string(jinja), Special: map[string]string{"eos_token": eos, "pad_token": "<|endoftext|>"}}
}

func small() model.Architecture {
	return model.Architecture{
		VocabSize: 710, HiddenSize: 48, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 16, FeedForward: 64,
		MaxPositions: 4096, RopeTheta: 500000, NormEpsilon: 1e-5, Tied: true,
	}
}

func TestExportedFilesAreImportedUnchanged(t *testing.T) {
	t.Parallel()
	scaled, biased, normed := small(), small(), small()
	scaled.RopeScaling = model.RopeScaling{Factor: 32, LowFrequencyFactor: 1, HighFrequencyFactor: 4, OriginalPositions: 512}
	biased.QKVBias, biased.Tied = true, false
	normed.QKNorm, normed.HeadDim = true, 24
	for name, a := range map[string]model.Architecture{"llama": small(), "scaled": scaled, "qwen2": biased, "qwen3": normed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, vocabulary := bundle(t, "qwen", "hermes", "<|im_end|>"), "qwen"
			if !a.QKVBias && !a.QKNorm {
				b, vocabulary = bundle(t, "llama3", "llama", "<|eot_id|>"), "llama3"
			}
			w := a.Init(7)
			path, dir := filepath.Join(t.TempDir(), "model.gguf"), t.TempDir()
			require.NoError(t, convert.ToGGUF(path, "tiny", a, w, b, gguf.F32))
			_, err := convert.FromGGUF(path, dir, convert.Options{})
			require.NoError(t, err)
			gotA, gotW, err := hf.ReadDirectory(dir)
			require.NoError(t, err)
			require.Equal(t, a, gotA)
			require.Empty(t, cmp.Diff(w, gotW))
			requireSameTokens(t, dir, vocabulary)
			got, err := dialog.ReadBundle(dir)
			require.NoError(t, err)
			require.Equal(t, b.Template, got.Template)
			require.Equal(t, b.ToolTemplate, got.ToolTemplate)
			require.Equal(t, b.Special["eos_token"], got.Special["eos_token"])
		})
	}
}

func TestMatricesAreExportedInTheTypeAskedFor(t *testing.T) {
	t.Parallel()
	a := small() // its rows of 48 numbers are not whole blocks
	w, b := a.Init(7), bundle(t, "qwen", "hermes", "<|im_end|>")
	for kind, off := range map[gguf.Type]float64{gguf.F16: 1e-3, gguf.BF16: 4e-3, gguf.Q8_0: 0.02} {
		path := filepath.Join(t.TempDir(), "model.gguf")
		require.NoError(t, convert.ToGGUF(path, "tiny", a, w, b, kind))
		f, err := os.Open(path)
		require.NoError(t, err)
		stat, err := f.Stat()
		require.NoError(t, err)
		opened, err := gguf.Open(f, stat.Size())
		require.NoError(t, err)
		types := map[gguf.Type]int{}
		for _, tensor := range opened.Tensors {
			types[tensor.Type]++
		}
		require.NoError(t, f.Close())
		want := map[gguf.Type]int{gguf.F32: 5, kind: 15}
		if kind == gguf.Q8_0 {
			want = map[gguf.Type]int{gguf.F32: 5, gguf.F16: 11, gguf.Q8_0: 4} // o_proj and down_proj
		}
		require.Equal(t, want, types)
		dir := t.TempDir()
		_, err = convert.FromGGUF(path, dir, convert.Options{DType: hf.F32})
		require.NoError(t, err)
		_, got, err := hf.ReadDirectory(dir)
		require.NoError(t, err)
		for i := range w {
			for j := range w[i].Data {
				require.InDelta(t, w[i].Data[j], got[i].Data[j], off*math.Max(0.1, math.Abs(float64(w[i].Data[j]))), w[i].Name)
			}
		}
	}
}

func TestWhatLlamaCppCannotDoIsNotExported(t *testing.T) {
	t.Parallel()
	path, good := filepath.Join(t.TempDir(), "model.gguf"), bundle(t, "qwen", "hermes", "<|im_end|>")
	export := func(a model.Architecture, b dialog.Bundle) error {
		return convert.ToGGUF(path, "tiny", a, a.Init(1), b, gguf.F16)
	}
	critic, both, few := small(), small(), small()
	critic.ValueHead, both.QKVBias, both.QKNorm, few.VocabSize = true, true, true, 700
	require.ErrorContains(t, export(critic, good), "a critic")
	require.ErrorContains(t, export(both, good), "both qkv_bias and qk_norm")
	require.ErrorContains(t, export(few, good), `no row for the token that ends a turn, 702 "<|im_end|>"`)
	other := good
	other.Tokenizer = bytes.Replace(good.Tokenizer, []byte(`|\\p{N}|`), []byte(`|\\p{N}{1,2}|`), 1)
	require.ErrorContains(t, export(small(), other), "fulgurite knows no name that llama.cpp has for the pre_tokenizer")
	require.NoFileExists(t, path)
	huge := small()
	w := huge.Init(1)
	w[3].Data[5] = 1e9
	require.ErrorContains(t, convert.ToGGUF(path, "tiny", huge, w, good, gguf.F16), "write tensor blk.0.attn_k.weight: 1e+09 is beyond the numbers of F16")
}
