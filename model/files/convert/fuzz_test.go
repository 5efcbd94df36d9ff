package convert_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/convert"
	"github.com/fulgurite/fulgurite/model/files/gguf"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// tiny returns a model with a vocabulary of SentencePiece: the bytes, five characters and
// the results of merging these.
func tiny(f *testing.F) (model.Architecture, dialog.Bundle) {
	f.Helper()
	tokens := []string{"<unk>", "<s>", "</s>"}
	for b := range 256 {
		tokens = append(tokens, fmt.Sprintf("<0x%02X>", b))
	}
	tokens = append(tokens, "▁", "a", "b", "ab", "▁a", "▁ab")
	ids := map[string]int{}
	for id, token := range tokens {
		ids[token] = id
	}
	added := make([]map[string]any, 3)
	for id := range added {
		added[id] = map[string]any{"id": id, "content": tokens[id], "special": true}
	}
	text, err := json.Marshal(map[string]any{
		"added_tokens": added,
		"normalizer":   map[string]any{"type": "Replace", "pattern": map[string]any{"String": " "}, "content": "▁"},
		"decoder": map[string]any{"type": "Sequence", "decoders": []any{
			map[string]any{"type": "Replace", "pattern": map[string]any{"String": "▁"}, "content": " "},
			map[string]any{"type": "ByteFallback"},
		}},
		"model": map[string]any{
			"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "vocab": ids,
			"merges": [][2]string{{"a", "b"}, {"▁", "a"}, {"▁", "ab"}, {"▁a", "b"}},
		},
	})
	require.NoError(f, err)
	return model.Architecture{
			VocabSize: len(tokens), HiddenSize: 4, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 2, FeedForward: 4,
			MaxPositions: 64, RopeTheta: 1e4, NormEpsilon: 1e-5, Tied: true,
		}, dialog.Bundle{
			Tokenizer: text, Template: "{% for m in messages %}{{ m.content + eos_token }}{% endfor %}",
			Special: map[string]string{"bos_token": "<s>", "eos_token": "</s>"},
		}
}

// FuzzFromGGUF checks that an imported model can be read, whatever the file says.
func FuzzFromGGUF(f *testing.F) {
	a, b := tiny(f)
	path := filepath.Join(f.TempDir(), "model.gguf")
	require.NoError(f, convert.ToGGUF(path, "tiny", a, a.Init(1), b, gguf.F16))
	file, err := os.ReadFile(path)
	require.NoError(f, err)
	f.Add(file)
	f.Fuzz(func(t *testing.T, file []byte) {
		folder := t.TempDir()
		path, dir := filepath.Join(folder, "model.gguf"), filepath.Join(folder, "model")
		require.NoError(t, os.WriteFile(path, file, 0o600))
		require.NoError(t, os.Mkdir(dir, 0o700))
		if _, err := convert.FromGGUF(path, dir, convert.Options{}); err != nil {
			require.ErrorContains(t, err, "import "+path)
			return
		}
		a, w, err := hf.ReadDirectory(dir)
		require.NoError(t, err)
		require.NoError(t, a.Match(w))
	})
}

// FuzzToGGUF checks that an exported vocabulary can be imported, whatever its
// tokenizer.json says.
func FuzzToGGUF(f *testing.F) {
	a, b := tiny(f)
	f.Add([]byte(b.Tokenizer))
	w := a.Init(1)
	f.Fuzz(func(t *testing.T, tokenizer []byte) {
		b := b
		b.Tokenizer = tokenizer
		folder := t.TempDir()
		path := filepath.Join(folder, "model.gguf")
		if err := convert.ToGGUF(path, "tiny", a, w, b, gguf.F16); err != nil {
			require.ErrorContains(t, err, "export "+path)
			require.NoFileExists(t, path)
			return
		}
		_, err := convert.FromGGUF(path, filepath.Join(folder, "model"), convert.Options{})
		require.NoError(t, err)
	})
}
