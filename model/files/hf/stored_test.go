package hf_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// stored writes a directory of a small model whose weights were changed by change.
func stored(t *testing.T, change func(model.Weights) model.Weights) string {
	t.Helper()
	dir, a := t.TempDir(), model.Tiny(11)
	config, err := hf.WriteConfig(a)
	require.NoError(t, err)
	write(t, dir, model.ConfigFile, config)
	var b bytes.Buffer
	require.NoError(t, hf.WriteSafetensors(&b, change(a.Init(1)), nil))
	write(t, dir, model.WeightsFile, b.Bytes())
	return dir
}

func TestDirectoriesAreCheckedBeforeTheyAreRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(model.Weights) model.Weights
		want   string
	}{
		"missing": {func(w model.Weights) model.Weights { return w[1:] }, "tensor model.embed_tokens.weight is absent"},
		"extra": {func(w model.Weights) model.Weights {
			return append(w, model.Tensor{Name: "model.extra", Shape: []int{1}, Data: []float32{1}})
		}, "tensor model.extra belongs to no part"},
		"shape": {func(w model.Weights) model.Weights {
			w[0].Shape = []int{64, 11}
			return w
		}, "tensor model.embed_tokens.weight has shape [64 11], config.json makes it [11 64]"},
	} {
		dir := stored(t, c.change)
		_, err := hf.OpenDirectory(dir)
		require.ErrorIs(t, err, hf.ErrFormat, name)
		require.ErrorContains(t, err, "read model "+dir, name)
		require.ErrorContains(t, err, c.want, name)
	}
	dir := stored(t, func(w model.Weights) model.Weights { return w })
	require.NoError(t, os.Truncate(filepath.Join(dir, model.WeightsFile), 1000))
	_, err := hf.OpenDirectory(dir)
	require.ErrorContains(t, err, "model.safetensors: bad model file")

	for text, want := range map[string]string{
		"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 2\n": "model.safetensors: bad model file: it is a pointer of Git LFS, not the file itself: fetch the file (git lfs pull)",
		"GGUF\x03\x00\x00\x00\x00\x00\x00\x00\x00":                           "it is a GGUF model, not safetensors",
		"PK\x03\x04\x00\x00\x00\x00\x00\x00":                                 "it is a ZIP archive",
	} {
		write(t, dir, model.WeightsFile, []byte(text))
		_, err := hf.OpenDirectory(dir)
		require.ErrorContains(t, err, want)
	}
}

func TestTensorsAreCopiedInTheTypeAskedFor(t *testing.T) {
	t.Parallel()
	a := model.Tiny(11)
	s, err := hf.OpenDirectory(stored(t, func(w model.Weights) model.Weights { return w }))
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	for to, off := range map[hf.DType]float64{hf.F32: 0, hf.F16: 1e-3, hf.BF16: 1e-2} {
		layouts := append([]hf.Layout{}, s.Layouts...)
		for i := range layouts {
			if i%2 == 0 { // narrow ones come after wide ones in the file
				layouts[i].DType = to
			}
		}
		var b bytes.Buffer
		require.NoError(t, hf.WriteTensors(&b, layouts, nil, func(l hf.Layout, w io.Writer) error { return s.CopyTensor(w, l.Name, l.DType) }))
		got, _, err := hf.ReadSafetensors(bytes.NewReader(b.Bytes()), int64(b.Len()))
		require.NoError(t, err)
		got, err = hf.Arrange(a, got)
		require.NoError(t, err)
		for i, want := range a.Init(1) {
			for j, x := range want.Data {
				require.InDelta(t, x, got[i].Data[j], off*max(0.01, float64(max(x, -x))))
			}
		}
	}
	short := hf.WriteTensors(&bytes.Buffer{}, s.Layouts[:1], nil, func(_ hf.Layout, w io.Writer) error {
		_, err := w.Write([]byte{1, 2, 3})
		return err
	})
	require.ErrorContains(t, short, "tensor model.embed_tokens.weight got 3 bytes, want 2816")
	_, err = hf.F16.AppendFloats(nil, []float32{1e6})
	require.ErrorContains(t, err, "beyond the numbers of F16")
}

func TestTensorsAreReadOneAtATime(t *testing.T) {
	t.Parallel()
	a := model.Tiny(11)
	dir := stored(t, func(w model.Weights) model.Weights { return w })
	s, err := hf.OpenDirectory(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	for _, want := range a.Init(1) {
		got, err := s.Tensor(want.Name)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err = s.Tensor("model.extra")
	require.ErrorIs(t, err, hf.ErrFormat)

	file, err := os.ReadFile(filepath.Join(dir, model.WeightsFile))
	require.NoError(t, err)
	var names []string
	err = hf.EachArray(bytes.NewReader(file), int64(len(file)), func(array hf.Array) error {
		names = append(names, array.Name)
		want, err := a.Init(1).Tensor(array.Name)
		require.NoError(t, err)
		require.Equal(t, want.Data, array.Data)
		return nil
	})
	require.NoError(t, err)
	require.Len(t, names, len(a.Tensors()))
	err = hf.EachArray(bytes.NewReader(file), int64(len(file)), func(hf.Array) error { return io.ErrShortBuffer })
	require.ErrorIs(t, err, io.ErrShortBuffer)
	require.Error(t, hf.EachArray(bytes.NewReader(file[:len(file)-1]), int64(len(file)), func(hf.Array) error { return nil }))
}

func TestAnOutputLayerOfItsOwnIsNotTakenForACopy(t *testing.T) {
	t.Parallel()
	with := func(change func(head []float32)) string {
		return stored(t, func(w model.Weights) model.Weights {
			table, err := w.Tensor("model.embed_tokens.weight")
			require.NoError(t, err)
			head := append([]float32{}, table.Data...)
			change(head)
			return append(w, model.Tensor{Name: "lm_head.weight", Shape: table.Shape, Data: head})
		})
	}
	copied, own := with(func([]float32) {}), with(func(head []float32) { head[len(head)-1]++ })
	for dir, untied := range map[string]bool{copied: false, own: true} {
		s, err := hf.OpenDirectory(dir)
		require.NoError(t, err)
		require.Equal(t, untied, s.Untied)
		require.Equal(t, untied, !s.Architecture.Tied)
		from, err := hf.ReadConfig(s.Config)
		require.NoError(t, err)
		require.Equal(t, s.Architecture, from, "other readers of the written config.json see the same")
		a, w, err := hf.ReadDirectory(dir)
		require.NoError(t, err)
		require.Equal(t, s.Architecture, a)
		require.Len(t, w, len(s.Layouts))
		require.NoError(t, s.Close())
	}
	_, w, err := hf.ReadDirectory(own)
	require.NoError(t, err)
	_, err = hf.Arrange(model.Tiny(11), w)
	require.ErrorContains(t, err, "tensor lm_head.weight differs from model.embed_tokens.weight")
	difference, err := hf.DifferentTensor(copied, own)
	require.NoError(t, err)
	require.Equal(t, "lm_head.weight", difference)
}
