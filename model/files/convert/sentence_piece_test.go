package convert_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/convert"
	"github.com/fulgurite/fulgurite/model/files/gguf"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// sentencePiece returns a small model with a vocabulary that SentencePiece trained and a
// template that fits it.
func sentencePiece(t *testing.T) (model.Architecture, model.Weights, dialog.Bundle) {
	t.Helper()
	dir := t.TempDir()
	_, err := convert.FromGGUF(unpackedFile(t, "sentencepiece.gguf"), dir, convert.Options{})
	require.NoError(t, err)
	a, w, err := hf.ReadDirectory(dir)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	require.NoError(t, err)
	return a, w, dialog.Bundle{
		Tokenizer: text, Template: "{{ bos_token }}{% for m in messages %}{{ m.role + ': ' + m.content + eos_token }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}",
		Special: map[string]string{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
	}
}

// requireGolden compares tokens with those of SentencePiece itself.
func requireGolden(t *testing.T, text []byte) {
	t.Helper()
	b, err := tokenizer.FromJSON(text)
	require.NoError(t, err)
	var said [][2]json.RawMessage
	golden, err := os.ReadFile(unpackedFile(t, "sentencepiece-golden.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(golden, &said))
	require.Greater(t, len(said), 1000)
	for _, pair := range said {
		var text string
		var want []int32
		require.NoError(t, json.Unmarshal(pair[0], &text))
		require.NoError(t, json.Unmarshal(pair[1], &want))
		if got := b.Encode(text); !slices.Equal(want, got) {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestAVocabularyOfSentencePieceGivesItsTokens(t *testing.T) {
	t.Parallel()
	_, _, b := sentencePiece(t)
	requireGolden(t, b.Tokenizer)
}

func TestAVocabularyOfSentencePieceIsExportedUnchanged(t *testing.T) {
	t.Parallel()
	a, w, b := sentencePiece(t)
	for name, change := range map[string]func([]byte) []byte{
		"with a space before texts": func(text []byte) []byte { return text },
		"without": func(text []byte) []byte {
			text = bytes.Replace(text, []byte(`{"prepend":"▁","type":"Prepend"},`), nil, 1)
			return bytes.Replace(text, []byte(`,{"content":" ","start":1,"stop":0,"type":"Strip"}`), nil, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := b
			b.Tokenizer = change(bytes.Clone(b.Tokenizer))
			path, dir := filepath.Join(t.TempDir(), "model.gguf"), t.TempDir()
			require.NoError(t, convert.ToGGUF(path, "tiny", a, w, b, gguf.F16))
			_, err := convert.FromGGUF(path, dir, convert.Options{})
			require.NoError(t, err)
			got, err := dialog.ReadBundle(dir)
			require.NoError(t, err)
			require.JSONEq(t, string(b.Tokenizer), string(got.Tokenizer))
			require.Equal(t, b.Template, got.Template)
			require.Equal(t, b.Special, got.Special)
		})
	}
}

func TestMergesWithoutScoresAreNotExported(t *testing.T) {
	t.Parallel()
	a, w, b := sentencePiece(t)
	metaspace := func(scheme string, split bool) func(map[string]any) {
		return func(file map[string]any) {
			file["normalizer"] = nil
			file["pre_tokenizer"] = map[string]any{"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}
		}
	}
	for name, c := range map[string]struct {
		change func(file map[string]any)
		want   string
	}{
		"first": {metaspace("first", false), ""}, "never": {metaspace("never", false), ""},
		"always": {metaspace("always", false), `prepend_scheme is "always"`},
		"split":  {metaspace("first", true), "split is true"},
		"lacks a merge": {func(file map[string]any) {
			m := file["model"].(map[string]any)
			m["merges"] = m["merges"].([]any)[1:]
		}, "model.merges lacks"},
		"merges apart": {func(file map[string]any) {
			m := file["model"].(map[string]any)
			merges := m["merges"].([]any)
			m["merges"] = append(slices.DeleteFunc(slices.Clone(merges), func(x any) bool { return x.([]any)[0] == "▁" }), slices.DeleteFunc(merges, func(x any) bool { return x.([]any)[0] != "▁" })...)
		}, "other merges come between those"},
		"ignored merges": {func(file map[string]any) { file["model"].(map[string]any)["ignore_merges"] = true }, "model.ignore_merges is true"},
		"normalizer":     {func(file map[string]any) { file["normalizer"] = map[string]any{"type": "NFC"} }, "normalizer: llama.cpp only turns each space"},
		"both": {func(file map[string]any) {
			file["pre_tokenizer"] = map[string]any{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false}
		}, "both a normalizer and a pre_tokenizer"},
		"normalized": {func(file map[string]any) {
			file["added_tokens"].([]any)[3].(map[string]any)["normalized"] = true
		}, `"<tool>" is searched in the normalized text`},
		"lacks a byte": {func(file map[string]any) {
			m := file["model"].(map[string]any)
			delete(m["vocab"].(map[string]any), "<0x41>")
			m["unk_token"] = nil
		}, "no token for the byte 0x41"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var file map[string]any
			require.NoError(t, json.Unmarshal(b.Tokenizer, &file))
			c.change(file)
			text, err := json.Marshal(file)
			require.NoError(t, err)
			b := b
			b.Tokenizer = text
			path := filepath.Join(t.TempDir(), "model.gguf")
			if err = convert.ToGGUF(path, "tiny", a, w, b, gguf.F16); c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "export "+path)
			require.ErrorContains(t, err, c.want)
			require.NoFileExists(t, path)
		})
	}
}
