package hf_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

func TestDirectoriesRoundTrip(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		a := drawArchitecture(t)
		w := a.Init(rapid.Uint64().Draw(t, "seed"))
		require.NoError(t, hf.WriteDirectory(dir, a, w)) // replaces the earlier files
		gotA, gotW, err := hf.ReadDirectory(dir)
		require.NoError(t, err)
		require.Equal(t, a, gotA)
		if diff := cmp.Diff(w, gotW); diff != "" {
			t.Fatal(diff)
		}
	})
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2) // nothing temporary is left
}

// shard writes weights into two files and their index.
func shard(t *testing.T, dir string, a model.Architecture, w model.Weights, index string) {
	t.Helper()
	config, err := hf.WriteConfig(a)
	require.NoError(t, err)
	write(t, dir, "config.json", config)
	for name, part := range map[string]model.Weights{"a.safetensors": w[len(w)/2:], "b.safetensors": w[:len(w)/2]} {
		var b bytes.Buffer
		require.NoError(t, hf.WriteSafetensors(&b, part, nil))
		write(t, dir, name, b.Bytes())
	}
	write(t, dir, "model.safetensors.index.json", []byte(index))
}

func write(t *testing.T, dir, name string, b []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
}

func TestShardedCheckpointsAreRead(t *testing.T) {
	t.Parallel()
	dir, a := t.TempDir(), model.Tiny(11)
	w := a.Init(1)
	// Published checkpoints also contain a copy of tied embeddings, or old buffers.
	stored := append(append(model.Weights{}, w...),
		model.Tensor{Name: "lm_head.weight", Shape: w[0].Shape, Data: w[0].Data},
		model.Tensor{Name: "model.layers.0.self_attn.rotary_emb.inv_freq", Shape: []int{1}, Data: []float32{1}})
	shard(t, dir, a, stored, `{"metadata":{"total_size":1},"weight_map":{"x":"b.safetensors","y":"a.safetensors","z":"b.safetensors"}}`)
	gotA, gotW, err := hf.ReadDirectory(dir)
	require.NoError(t, err)
	require.Equal(t, a, gotA)
	require.Empty(t, cmp.Diff(w, gotW))

	write(t, dir, "model.safetensors", nil)
	_, _, err = hf.ReadDirectory(dir)
	require.ErrorContains(t, err, "both")
}

func TestSettingsAreReadInUTF8WithAndWithoutAMark(t *testing.T) {
	t.Parallel()
	dir, a := t.TempDir(), model.Tiny(11)
	w := a.Init(1)
	shard(t, dir, a, w, "\ufeff"+`{"weight_map": {"x": "b.safetensors", "y": "a.safetensors"}}`)
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	write(t, dir, "config.json", append([]byte("\ufeff"), config...))
	got, _, err := hf.ReadDirectory(dir)
	require.NoError(t, err)
	require.Equal(t, a, got)
	s, err := hf.OpenDirectory(dir)
	require.NoError(t, err)
	require.Equal(t, string(config), string(s.Config))
	require.NoError(t, s.Close())

	write(t, dir, "config.json", []byte("\xff\xfe{\x00}\x00"))
	_, err = hf.OpenDirectory(dir)
	require.ErrorContains(t, err, "config.json: it is in UTF-16: save it in UTF-8")
}

func TestIndexesCannotReachOutside(t *testing.T) {
	t.Parallel()
	a := model.Tiny(11)
	for _, name := range []string{"../secret", "/etc/passwd", "", "..", ".", `a\\b`, "sub/a.safetensors"} {
		dir := t.TempDir()
		shard(t, dir, a, a.Init(1), `{"weight_map":{"x":"`+name+`"}}`)
		_, _, err := hf.ReadDirectory(dir)
		require.ErrorIs(t, err, hf.ErrFormat, name)
		require.ErrorContains(t, err, "names the file")
	}
}

func TestWeightsThatDoNotFitAreRefusedByName(t *testing.T) {
	t.Parallel()
	a := model.Tiny(11)
	tensor := func(name string, shape ...int) model.Tensor {
		n := model.Tensor{Name: name, Shape: shape}
		n.Data = make([]float32, n.Size())
		return n
	}
	for want, change := range map[string]func(model.Weights) model.Weights{
		"tensor model.norm.weight is absent":      func(w model.Weights) model.Weights { return w[:len(w)-1] },
		"tensor model.norm.weight occurs twice":   func(w model.Weights) model.Weights { return append(w, w[len(w)-1]) },
		"has shape [64 11], want [11 64]":         func(w model.Weights) model.Weights { w[0].Shape = []int{64, 11}; return w },
		"tensor model.layers.2.mlp.up_proj.weigh": func(w model.Weights) model.Weights { return append(w, tensor("model.layers.2.mlp.up_proj.weight", 1)) },
		"self_attn.o_proj.bias belongs to no": func(w model.Weights) model.Weights {
			return append(w, tensor("model.layers.0.self_attn.o_proj.bias", 1))
		},
	} {
		_, err := hf.Arrange(a, change(a.Init(1)))
		require.ErrorIs(t, err, hf.ErrFormat, want)
		require.ErrorContains(t, err, want)
	}
	untied := a
	untied.Tied = false
	_, err := hf.Arrange(untied, a.Init(1))
	require.ErrorContains(t, err, "lm_head.weight is absent")
}

func TestUnfitWeightsAreNotWritten(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	a := model.Tiny(11)
	require.ErrorIs(t, hf.WriteDirectory(dir, a, a.Init(1)[1:]), model.ErrArchitecture)
	require.NoDirExists(t, dir)
	_, _, err := hf.ReadDirectory(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
}
