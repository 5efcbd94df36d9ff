package parity_test

import (
	"encoding/json"
	"os"
	"path/filepath"
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

// zooReference is what transformers makes of a member of the zoo.
type zooReference struct {
	Refused                string
	IDs                    map[string][]int32
	Before, After, Special []int32
	Row                    []int32
	Logprobs               []float32
}

// The zoo is made by zoo/run, whose folder FULGURITE_ZOO names. For llama.cpp the test
// writes model.gguf and ours.json beside each member.
func TestTheZooIsReadAsTransformersReadsIt(t *testing.T) {
	t.Parallel()
	zoo := os.Getenv("FULGURITE_ZOO")
	if zoo == "" {
		t.Skip("no FULGURITE_ZOO")
	}
	members, err := filepath.Glob(filepath.Join(zoo, "*", "reference.json"))
	require.NoError(t, err)
	require.NotEmpty(t, members)
	for _, path := range members {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			var want zooReference
			require.NoError(t, json.Unmarshal(text, &want))
			codec, encoded, err := dialog.ReadCodec(dir, "", "")
			if want.Refused != "" {
				require.ErrorContains(t, err, want.Refused)
				return
			}
			require.NoError(t, err)
			b, err := dialog.DecodeBundle(encoded)
			require.NoError(t, err)
			vocabulary, err := tokenizer.FromJSON(b.Tokenizer)
			require.NoError(t, err)
			for text, ids := range want.IDs {
				require.Equal(t, ids, vocabulary.EncodeSpecial(text), "%q", text)
			}
			before, after, err := tokenizer.Around(b.Tokenizer)
			require.NoError(t, err)
			require.ElementsMatch(t, want.Before, before)
			require.ElementsMatch(t, want.After, after)
			var special []int32
			for id := range vocabulary.SpecialTokens() {
				special = append(special, id)
			}
			require.ElementsMatch(t, want.Special, special)
			require.Equal(t, []int32{702, 700}, codec.Stop())
			a, w, err := hf.ReadDirectory(dir)
			require.NoError(t, err)
			sameLogprobs(t, a, w, want)
			exportMember(t, dir, a, w, b, vocabulary, want)
		})
	}
}

func sameLogprobs(t *testing.T, a model.Architecture, w model.Weights, want zooReference) {
	t.Helper()
	trains, err := native.New(native.Options{}).NewTrainer(model.Checkpoint{Architecture: a, Weights: w})
	require.NoError(t, err)
	defer trains.Close()
	got, _, err := trains.Score(t.Context(), []model.Row{{Tokens: want.Row}})
	require.NoError(t, err)
	require.InDeltaSlice(t, want.Logprobs, got[0], 1e-4)
}

// exportMember writes a GGUF file and what is expected of llama.cpp, unless the member is
// one that llama.cpp can't express.
func exportMember(t *testing.T, dir string, a model.Architecture, w model.Weights, b dialog.Bundle, vocabulary *tokenizer.BPE, want zooReference) {
	t.Helper()
	path, imported := filepath.Join(dir, "model.gguf"), filepath.Join(t.TempDir(), "imported")
	if err := convert.ToGGUF(path, "zoo", a, w, b, gguf.F32); err != nil {
		require.ErrorIs(t, err, convert.ErrUnsupported)
		return
	}
	_, err := convert.FromGGUF(path, imported, convert.Options{})
	require.NoError(t, err)
	again, err := dialog.ReadBundle(imported)
	require.NoError(t, err)
	ids := map[string][]int32{}
	for text := range want.IDs {
		ids[text] = append(append(append([]int32{}, want.Before...), vocabulary.EncodeSpecial(text)...), want.After...)
	}
	ours, err := json.Marshal(map[string]any{"ids": ids, "ends": again.Stop})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ours.json"), ours, 0o600))
}
