package hf_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

func TestTensorsInAnyOrderMakeTheSameFile(t *testing.T) {
	t.Parallel()
	a := model.Tiny(7)
	w := a.Init(3)
	write := func(given model.Weights) (model.Weights, error) {
		path := filepath.Join(t.TempDir(), "f")
		f, err := os.Create(path)
		require.NoError(t, err)
		defer func() { require.NoError(t, f.Close()) }()
		err = hf.WriteEach(f, a.Tensors(), model.EachOf(func() (model.Weights, error) { return given, nil }))
		if err != nil {
			return nil, err
		}
		info, err := f.Stat()
		require.NoError(t, err)
		got, _, err := hf.ReadSafetensors(f, info.Size())
		return got, err
	}
	backwards := slices.Clone(w)
	slices.Reverse(backwards)
	got, err := write(backwards)
	require.NoError(t, err)
	got, err = hf.Arrange(a, got)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(w, got))

	_, err = write(w[1:])
	require.ErrorContains(t, err, "model.embed_tokens.weight is absent")
	_, err = write(append(slices.Clone(w), w[0]))
	require.ErrorContains(t, err, "is there twice")
	other := slices.Clone(w)
	other[0].Shape = []int{64, 7}
	_, err = write(other)
	require.ErrorContains(t, err, "has shape [64 7]")
}
