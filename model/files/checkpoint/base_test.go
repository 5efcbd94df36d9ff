package checkpoint_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// wholeBlocks returns an architecture whose matrices consist of whole blocks of Q8_0.
func wholeBlocks() model.Architecture {
	a := state(0).Architecture
	a.HiddenSize, a.FeedForward, a.HeadDim = 64, 32, 16
	return a
}

func TestABaseInFloat32IsAFileOfItsWeights(t *testing.T) {
	t.Parallel()
	a := wholeBlocks()
	base, err := checkpoint.SaveBase(t.Context(), blobs(t), a, model.F32, a.Init(1).Tensor)
	require.NoError(t, err)
	var file bytes.Buffer
	require.NoError(t, hf.WriteSafetensors(&file, a.Init(1), map[string]string{"format": "pt"}))
	require.Equal(t, fmt.Sprintf("sha256:%x", sha256.Sum256(file.Bytes())), base.Digest)
	require.Equal(t, int64(file.Len()), base.Size)
}

func TestABaseIsRoundedOnce(t *testing.T) {
	t.Parallel()
	a := wholeBlocks()
	for p, off := range map[model.Precision]float64{model.BF16: 1.0 / 256, model.Q8_0: 1.0 / 127} {
		b := blobs(t)
		base, err := checkpoint.SaveBase(t.Context(), b, a, p, a.Init(1).Tensor)
		require.NoError(t, err)
		matrices := 0
		for _, tensor := range a.Tensors() {
			if len(tensor.Shape) > 1 {
				matrices += tensor.Size()
			}
		}
		stored, _ := p.Bytes(int64(matrices))
		require.InDelta(t, stored, base.Size, 3000, "header and vectors come on top")

		got, err := base.Read()
		require.NoError(t, err)
		for i, want := range a.Init(1) {
			if len(want.Shape) == 1 {
				require.Empty(t, cmp.Diff(want, got[i]))
				continue
			}
			most := 0.0
			for _, x := range want.Data {
				most = max(most, math.Abs(float64(x)))
			}
			require.NotEqual(t, want.Data, got[i].Data)
			for j, x := range want.Data {
				require.InDelta(t, x, got[i].Data[j], off*most, want.Name)
			}
		}
		again, err := checkpoint.SaveBase(t.Context(), b, a, p, got.Tensor)
		require.NoError(t, err)
		require.Equal(t, base.Digest, again.Digest, "what was rounded stays as it is")
	}
}

func TestTheIdentityOfAnAdapterTellsHowItsBaseIsRounded(t *testing.T) {
	t.Parallel()
	a, b := wholeBlocks(), blobs(t)
	seen := map[string]bool{}
	for _, p := range model.Precisions() {
		base, err := checkpoint.SaveBase(t.Context(), b, a, p, a.Init(1).Tensor)
		require.NoError(t, err)
		l := model.LoRA{Rank: 2, Alpha: 4, Targets: []string{"v_proj"}, BasePrecision: p}
		c := model.Checkpoint{Architecture: a, Adapter: &model.Adapter{LoRA: l, Base: base}, Weights: a.InitAdapter(l, 1)}
		digest, weights, err := checkpoint.Save(t.Context(), b, c, manifest(3))
		require.NoError(t, err)
		seen[weights] = true
		got, _, err := checkpoint.Load(t.Context(), b, digest)
		require.NoError(t, err)
		require.Equal(t, p, got.Adapter.Precision())
	}
	require.Len(t, seen, 3)
}

func TestWhatCannotBeABaseIsRefused(t *testing.T) {
	t.Parallel()
	a := wholeBlocks()
	for _, p := range model.Precisions() {
		_, err := checkpoint.SaveBase(t.Context(), blobs(t), a, p, a.Init(1)[1:].Tensor)
		require.ErrorContains(t, err, "tensor model.embed_tokens.weight is absent")
		w := a.Init(1)
		w[0].Shape = []int{64, 12}
		_, err = checkpoint.SaveBase(t.Context(), blobs(t), a, p, w.Tensor)
		require.ErrorIs(t, err, model.ErrArchitecture)
		w = a.Init(1)
		w[0].Data[7] = float32(math.NaN())
		base, err := checkpoint.SaveBase(t.Context(), blobs(t), a, p, w.Tensor)
		require.NoError(t, err, "who reads it reports what is not finite")
		w, err = base.Read()
		require.NoError(t, err)
		require.True(t, math.IsNaN(float64(w[0].Data[7])))
	}
	_, err := checkpoint.SaveBase(t.Context(), blobs(t), state(0).Architecture, model.Q8_0, state(0).Weights.Tensor)
	require.ErrorIs(t, err, model.ErrAdapter)
}
