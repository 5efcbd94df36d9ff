package checkpoint_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
)

// adapted returns a policy with an adapter whose base is stored in b.
func adapted(t *testing.T, b checkpoint.Blobs, updates int, seed uint64) model.Checkpoint {
	t.Helper()
	whole := state(0)
	base, err := checkpoint.SaveBase(t.Context(), b, whole.Architecture, model.F32, whole.Weights.Tensor)
	require.NoError(t, err)
	l := model.LoRA{Rank: 2, Alpha: 4, Targets: []string{"v_proj", "q_proj", "down_proj"}}
	c := model.Checkpoint{
		Architecture: whole.Architecture, Adapter: &model.Adapter{LoRA: l, Base: base},
		Weights: whole.Architecture.InitAdapter(l, seed), Updates: updates,
	}
	if updates > 0 {
		c.Mean, c.Variance = whole.Architecture.InitAdapter(l, 8), whole.Architecture.InitAdapter(l, 9)
	}
	return c
}

func TestAnAdapterIsReadAsItWasSaved(t *testing.T) {
	t.Parallel()
	for _, updates := range []int{0, 7} {
		b := blobs(t)
		policy := adapted(t, b, updates, 1)
		critic, err := model.CriticOf(policy)
		require.NoError(t, err)
		for _, c := range []model.Checkpoint{policy, critic} {
			digest, weights, err := checkpoint.Save(t.Context(), b, c, manifest(3))
			require.NoError(t, err)
			got, m, err := checkpoint.Load(t.Context(), b, digest)
			require.NoError(t, err)
			require.Equal(t, model.AdapterManifestFormat, m.Format)
			require.Equal(t, weights, m.Weights())
			require.Contains(t, m.Blobs(), c.Adapter.Base.Digest)
			require.NotContains(t, m.Files, model.WeightsFile, "the base is not copied")
			require.True(t, c.Adapter.Equal(got.Adapter.LoRA))
			require.Equal(t, c.Adapter.Base.Architecture, got.Adapter.Base.Architecture)
			require.Empty(t, cmp.Diff(c.Weights, got.Weights))
			require.Empty(t, cmp.Diff(c.Mean, got.Mean))
			require.Empty(t, cmp.Diff(c.Variance, got.Variance))
			base, err := got.Adapter.Base.Read()
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(state(0).Weights, base))
		}
	}
}

func TestTheIdentityOfAnAdapterIsThatOfBaseAndAdapter(t *testing.T) {
	t.Parallel()
	b := blobs(t)
	save := func(c model.Checkpoint) string {
		_, weights, err := checkpoint.Save(t.Context(), b, c, manifest(3))
		require.NoError(t, err)
		return weights
	}
	first := save(adapted(t, b, 0, 1))
	require.Equal(t, first, save(adapted(t, b, 2, 1)), "moments are no part of it")
	other := adapted(t, b, 0, 1)
	other.Adapter.Alpha = 5
	require.NotEqual(t, first, save(other))
	require.NotEqual(t, first, save(adapted(t, b, 0, 2)))
	other = adapted(t, b, 0, 1)
	base, err := checkpoint.SaveBase(t.Context(), b, other.Architecture, model.F32, other.Architecture.Init(5).Tensor)
	require.NoError(t, err)
	other.Adapter.Base = base
	require.NotEqual(t, first, save(other))
}

func TestAnAdapterThatContradictsItsManifestIsRefused(t *testing.T) {
	t.Parallel()
	b := blobs(t)
	digest, _, err := checkpoint.Save(t.Context(), b, adapted(t, b, 2, 1), manifest(3))
	require.NoError(t, err)
	for name, spoil := range map[string]func(*model.Manifest){
		"another base": func(m *model.Manifest) { m.Base.Digest = m.Files[model.AdapterFile].Digest },
		"another rank": func(m *model.Manifest) { m.LoRA.Rank = 4 },
		"other numbers": func(m *model.Manifest) {
			f := m.Files[model.OptimizerFile]
			m.Files[model.AdapterFile] = f
		},
	} {
		_, m, err := checkpoint.Load(t.Context(), b, digest)
		require.NoError(t, err)
		spoil(&m)
		_, _, err = checkpoint.Load(t.Context(), b, b.manifest(t, m))
		require.ErrorIs(t, err, checkpoint.ErrCorrupt, name)
	}
	c := adapted(t, b, 0, 1)
	c.Weights = c.Weights[1:]
	_, _, err = checkpoint.Save(t.Context(), b, c, manifest(3))
	require.ErrorIs(t, err, model.ErrArchitecture)
}

func TestADamagedBaseIsAnErrorWhereItIsRead(t *testing.T) {
	t.Parallel()
	b := blobs(t)
	digest, _, err := checkpoint.Save(t.Context(), b, adapted(t, b, 0, 1), manifest(3))
	require.NoError(t, err)
	_, m, err := checkpoint.Load(t.Context(), b, digest)
	require.NoError(t, err)
	m.Base.Size++
	c, _, err := checkpoint.Load(t.Context(), b, b.manifest(t, m))
	require.NoError(t, err, "nobody read the base")
	_, err = c.Adapter.Base.Read()
	require.ErrorIs(t, err, checkpoint.ErrCorrupt)
	require.ErrorContains(t, err, "the base")
	require.False(t, strings.Contains(err.Error(), context.Canceled.Error()))
}
