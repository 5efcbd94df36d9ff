package checkpoint_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// coded returns a policy with tensors that are kept in 8 bits and whose rows have more
// than one block.
func coded() model.Checkpoint {
	c := state(0)
	c.Architecture.HiddenSize, c.Architecture.FeedForward, c.Architecture.VocabSize = 16, 300, 300
	c.Weights, c.Mean, c.Variance = c.Architecture.Init(1), c.Architecture.Init(2), c.Architecture.Init(3)
	c.Updates, c.Moments = 3, model.MomentsInt8
	for _, t := range c.Variance {
		for i, x := range t.Data {
			t.Data[i] = x * x
		}
	}
	return c
}

func TestMomentsInEightBitsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	b, c := blobs(t), coded()
	for i := range c.Mean { // a block of zeros
		if len(c.Mean[i].Shape) > 1 {
			clear(c.Mean[i].Data[:min(256, c.Mean[i].Shape[1])])
		}
	}
	digest, _, err := checkpoint.Save(t.Context(), b, c, manifest(1))
	require.NoError(t, err)
	first, m, err := checkpoint.Load(t.Context(), b, digest)
	require.NoError(t, err)
	require.Equal(t, model.MomentsInt8, first.Moments)
	require.NotContains(t, m.Files, model.OptimizerFile)
	numbers := int64(c.Architecture.Parameters())
	require.Less(t, m.Files[model.Optimizer8File].Size, numbers*2*3/2, "bytes for two moments, scales, small tensors and a header")
	for i := range c.Mean {
		largest := 0.0
		for _, x := range c.Mean[i].Data {
			largest = max(largest, math.Abs(float64(x)))
		}
		for j, x := range c.Mean[i].Data {
			// In the upper decade 64 numbers share nine tenths of the largest.
			require.InDelta(t, x, first.Mean[i].Data[j], largest*0.9/64/2+1e-9)
			v, back := c.Variance[i].Data[j], first.Variance[i].Data[j]
			require.Equal(t, v == 0, back == 0, "no step divides by a root that has vanished")
		}
	}

	second, _, err := checkpoint.Save(t.Context(), b, first, manifest(1))
	require.NoError(t, err)
	require.Equal(t, digest, second, "what was read is written as it was")
	first.Moments = model.MomentsF32
	wide, _, err := checkpoint.Save(t.Context(), b, first, manifest(1))
	require.NoError(t, err)
	again, m, err := checkpoint.Load(t.Context(), b, wide)
	require.NoError(t, err)
	require.Contains(t, m.Files, model.OptimizerFile)
	require.Empty(t, cmp.Diff(first, again))
}

func TestMomentsOfAnotherFormatAreRefused(t *testing.T) {
	t.Parallel()
	b := blobs(t)
	digest, _, err := checkpoint.Save(t.Context(), b, coded(), manifest(1))
	require.NoError(t, err)
	text, err := b.Get(t.Context(), digest)
	require.NoError(t, err)
	m, err := model.ParseManifest(text)
	require.NoError(t, err)
	original, err := b.Get(t.Context(), m.Files[model.Optimizer8File].Digest)
	require.NoError(t, err)
	for want, change := range map[string]func(arrays []hf.Array, metadata map[string]string){
		`its format is "fulgurite.moments/9", want "fulgurite.moments/1"`: func(_ []hf.Array, metadata map[string]string) { metadata["format"] = "fulgurite.moments/9" },
		"has code 255, the last is 254": func(arrays []hf.Array, _ map[string]string) {
			arrays[len(arrays)-1].Data.([]uint8)[0] = 255
		},
		"scales, want": func(arrays []hf.Array, _ map[string]string) { arrays[len(arrays)-1].Name += "x" },
	} {
		arrays, metadata, err := hf.ReadArrays(bytes.NewReader(original), int64(len(original)))
		require.NoError(t, err)
		change(arrays, metadata)
		var file bytes.Buffer
		require.NoError(t, hf.WriteArrays(&file, arrays, metadata))
		put, err := b.Put(t.Context(), file.Bytes())
		require.NoError(t, err)
		m.Files[model.Optimizer8File] = model.File{Digest: put, Size: int64(file.Len())}
		changed, err := m.Encode()
		require.NoError(t, err)
		put, err = b.Put(t.Context(), changed)
		require.NoError(t, err)
		_, _, err = checkpoint.Load(t.Context(), b, put)
		require.ErrorIs(t, err, checkpoint.ErrCorrupt)
		require.ErrorContains(t, err, want)
	}
	c := coded()
	c.Moments = "int4"
	_, _, err = checkpoint.Save(t.Context(), b, c, manifest(1))
	require.ErrorContains(t, err, `moments "int4"`)
}
