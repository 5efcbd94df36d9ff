package catalog_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/catalog"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

// fakeRecords has run "demo" with a gate split and with versions 0 and 1, of which 0
// is promoted, and run "fresh" without any.
type fakeRecords struct {
	catalog.Catalog
	store    *store.Store
	versions [2]model.Version
}

func architecture() model.Architecture {
	return model.Architecture{
		VocabSize: 12, HiddenSize: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4,
		FeedForward: 8, MaxPositions: 16, RopeTheta: 10000, NormEpsilon: 1e-6,
	}
}

func newFakeRecords(t testing.TB) *fakeRecords {
	t.Helper()
	ctx, dir := t.Context(), t.TempDir()
	st, err := store.Open(ctx, filepath.Join(dir, "store.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	require.NoError(t, st.Migrate(ctx))
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	require.NoError(t, err)
	s := &fakeRecords{Catalog: catalog.Catalog{Store: st, Blobs: blobs}, store: st}
	for _, name := range []string{"demo", "fresh"} {
		_, _, err := st.CreateRun(ctx, record.Run{
			Name: name, Spec: []byte(`{"model":{"codec":"compact"}}`), Splits: map[record.Kind]record.Split{record.Gate: {Digest: "sha256:g", Count: 4}},
		})
		require.NoError(t, err)
	}
	for n := range s.versions {
		a := architecture()
		c := model.Checkpoint{Architecture: a, Weights: a.Init(uint64(n))}
		manifest, weights, err := checkpoint.Save(ctx, blobs, c, model.Manifest{Policy: "main", Number: n, Parent: n - 1, Codec: "compact"})
		require.NoError(t, err)
		s.versions[n] = s.put(t, model.Version{VersionID: id(n), Parent: n - 1, Manifest: manifest, Weights: weights})
	}
	require.NoError(t, st.Promote(ctx, record.Promotion{Run: "demo", Policy: "main", DecisionID: "d", Version: 0, Previous: -1}))
	return s
}

func (s *fakeRecords) put(t testing.TB, v model.Version) model.Version {
	t.Helper()
	v, created, err := s.store.PutVersion(t.Context(), v)
	require.NoError(t, err)
	require.True(t, created)
	return v
}

func id(number int) model.VersionID {
	return model.VersionID{Run: "demo", Policy: model.DefaultPolicy, Number: number}
}

func TestReferencesMeanVersions(t *testing.T) {
	t.Parallel()
	s := newFakeRecords(t)
	for reference, number := range map[string]int{"demo": 0, "demo@promoted": 0, "demo@newest": 1, "demo@0": 0, "demo@1": 1} {
		v, err := s.Find(t.Context(), reference)
		require.NoError(t, err)
		require.Equal(t, id(number), v.VersionID, reference)
		served, err := s.Resolve(t.Context(), reference)
		require.NoError(t, err)
		require.Equal(t, model.Served{
			VersionID: id(number), MaxCalls: spec.DefaultMaxCalls, Codec: "compact", Newest: reference == "demo@newest", Pinned: reference == "demo@0" || reference == "demo@1",
		}, served)
	}
	for _, reference := range []string{"", "@", "demo@", "demo@2", "demo@-1", "demo@+1", "demo@01", "demo@x", "demo@1@1", "fresh", "fresh@newest", "fresh@0", "other@promoted"} {
		_, err := s.Resolve(t.Context(), reference)
		require.ErrorIs(t, err, record.ErrNotFound, reference)
	}
}

func TestThePromotedReferenceFollowsThePointer(t *testing.T) {
	t.Parallel()
	s := newFakeRecords(t)
	for i, move := range []record.Promotion{
		{Version: 1, Previous: 0, Source: record.SourceGate}, {Version: 0, Previous: 1, Source: record.SourceRollback},
		{Version: 1, Previous: 0, Source: record.SourcePin}, {Version: 1, Previous: 1, Source: record.SourceUnpin},
	} {
		move.Run, move.Policy, move.DecisionID = "demo", "main", string(move.Source)
		require.NoError(t, s.store.Promote(t.Context(), move))
		v, err := s.Find(t.Context(), "demo@promoted")
		require.NoError(t, err)
		require.Equal(t, id(move.Version), v.VersionID, "move %d", i)
	}
}

func TestWhatIsListedCanBeAskedFor(t *testing.T) {
	t.Parallel()
	s := newFakeRecords(t)
	names, err := s.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"demo@promoted"}, names, "nothing of the other run is promoted")
	_, err = s.Resolve(t.Context(), names[0])
	require.NoError(t, err)
}

func TestARunWhoseRemovalHasBegunIsNotServed(t *testing.T) {
	t.Parallel()
	s := newFakeRecords(t)
	ctx := t.Context()
	require.NoError(t, s.store.FinishRun(ctx, "demo", record.Completed, nil))
	run, err := s.store.Run(ctx, "demo")
	require.NoError(t, err)
	_, _, err = s.store.BeginForgetting(ctx, run, record.Forgotten{Run: "demo", What: record.ForgottenRun, By: "me"})
	require.NoError(t, err)
	names, err := s.List(ctx)
	require.NoError(t, err)
	require.Empty(t, names)
	for _, reference := range []string{"demo", "demo@1", "demo@promoted"} {
		_, err = s.Resolve(ctx, reference)
		require.ErrorIs(t, err, record.ErrForgotten, reference)
	}
}

func TestLoadedWeightsAreThoseOfTheVersion(t *testing.T) {
	t.Parallel()
	s := newFakeRecords(t)
	c, digest, err := s.Load(t.Context(), id(1))
	require.NoError(t, err)
	require.Equal(t, architecture(), c.Architecture)
	require.Equal(t, s.versions[1].Weights, digest)
	require.Empty(t, cmp.Diff(architecture().Init(1), c.Weights))
	_, _, err = s.Load(t.Context(), id(7))
	require.ErrorIs(t, err, record.ErrNotFound)
}

func TestAVersionWhoseManifestHasOtherWeightsIsNotLoaded(t *testing.T) {
	t.Parallel()
	s := newFakeRecords(t)
	s.put(t, model.Version{VersionID: id(2), Parent: 1, Manifest: s.versions[1].Manifest, Weights: s.versions[0].Weights})
	_, _, err := s.Load(t.Context(), id(2))
	require.ErrorIs(t, err, checkpoint.ErrCorrupt)
	require.ErrorContains(t, err, "demo@2")
}

func TestTheCanaryIsThatOfTheVersion(t *testing.T) {
	t.Parallel()
	s := newFakeRecords(t)
	c, err := s.Canary(t.Context(), id(1))
	require.NoError(t, err)
	require.Nil(t, c, "it was saved without")
	want := model.Canary{
		Format: model.CanaryFormat, Fingerprint: "f", Rows: []model.CanaryRow{{Prompt: []int32{1}, Tokens: []int32{2}, Logprobs: []float32{-2}}},
	}
	a := architecture()
	manifest, weights, err := checkpoint.SaveVersion(t.Context(), s.Blobs, model.Checkpoint{Architecture: a, Weights: a.Init(2)},
		model.Manifest{Policy: "main", Number: 2, Parent: 1, Codec: "compact"}, want)
	require.NoError(t, err)
	s.put(t, model.Version{VersionID: id(2), Parent: 1, Manifest: manifest, Weights: weights})
	c, err = s.Canary(t.Context(), id(2))
	require.NoError(t, err)
	require.Equal(t, want, *c)
	_, err = s.Canary(t.Context(), id(7))
	require.ErrorIs(t, err, record.ErrNotFound)
}
