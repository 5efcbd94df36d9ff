package checkpoint_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/store/blob"
)

func canary() model.Canary {
	return model.Canary{
		Format: model.CanaryFormat, Fingerprint: "f", Tolerance: 1e-3,
		Rows: []model.CanaryRow{{Prompt: []int32{1}, Tokens: []int32{2}, Logprobs: []float32{-1.5}}},
	}
}

func TestAVersionIsReadWithItsCanary(t *testing.T) {
	t.Parallel()
	b := blobs(t)
	with, _, err := checkpoint.SaveVersion(t.Context(), b, state(2), manifest(3), canary())
	require.NoError(t, err)
	require.Equal(t, with, b.digests[len(b.digests)-1], "the manifest is last")
	got, err := checkpoint.LoadCanary(t.Context(), b, with)
	require.NoError(t, err)
	require.Equal(t, canary(), *got)

	without, _, err := checkpoint.Save(t.Context(), b, state(2), manifest(3))
	require.NoError(t, err)
	got, err = checkpoint.LoadCanary(t.Context(), b, without)
	require.NoError(t, err)
	require.Nil(t, got)
	_, m, err := checkpoint.Load(t.Context(), b, with)
	require.NoError(t, err)
	_, other, err := checkpoint.Load(t.Context(), b, without)
	require.NoError(t, err)
	require.Equal(t, other.Files[model.WeightsFile], m.Files[model.WeightsFile], "the weights are the same file")
}

func TestACanaryThatCannotBeReadIsNoMissingOne(t *testing.T) {
	t.Parallel()
	b := blobs(t)
	digest, _, err := checkpoint.SaveVersion(t.Context(), b, state(2), manifest(3), canary())
	require.NoError(t, err)
	_, m, err := checkpoint.Load(t.Context(), b, digest)
	require.NoError(t, err)
	text := []byte(`{"format":"fulgurite.canary/1","rows":[{}]}`)
	other, err := b.Put(t.Context(), text)
	require.NoError(t, err)
	m.Files[model.CanaryFile] = model.File{Digest: other, Size: int64(len(text))}
	_, err = checkpoint.LoadCanary(t.Context(), b, b.manifest(t, m))
	require.ErrorIs(t, err, checkpoint.ErrCorrupt)
	require.ErrorIs(t, err, model.ErrCanary)

	spoilt := canary()
	spoilt.Rows[0].Tokens = nil
	_, _, err = checkpoint.SaveVersion(t.Context(), b, state(2), manifest(3), spoilt)
	require.ErrorIs(t, err, model.ErrCanary)
}

// BenchmarkSave measures writing a version of the demo's size, as training does after
// each step, with and without a canary.
func BenchmarkSave(b *testing.B) {
	a := model.Tiny(512)
	for name, with := range map[string]bool{"canary": true, "bare": false} {
		b.Run(name, func(b *testing.B) {
			store, err := blob.Open(b.TempDir())
			require.NoError(b, err)
			c := model.Checkpoint{Architecture: a, Weights: a.Init(1), Updates: 1, Mean: a.Init(2), Variance: a.Init(3)}
			k := canary()
			n := 0
			for b.Loop() {
				n++
				c.Weights[0].Data[0], c.Mean[0].Data[0] = float32(n), float32(n)
				k.Rows[0].Logprobs[0] = -float32(n)
				if with {
					_, _, err = checkpoint.SaveVersion(b.Context(), store, c, manifest(n), k)
				} else {
					_, _, err = checkpoint.Save(b.Context(), store, c, manifest(n))
				}
				require.NoError(b, err)
			}
		})
	}
}
