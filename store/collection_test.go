package store_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// superseded returns the manifests that CollectSuperseded passes on, and the kept ones.
func superseded(t *testing.T, s *store.Store, result error) (gone, kept []string) {
	t.Helper()
	left, err := s.CollectSuperseded(t.Context(), nil, func(g, k []string) (done, both []string, err error) {
		gone, kept = g, k
		return g, nil, result
	})
	require.ErrorIs(t, err, result)
	require.False(t, left)
	return gone, kept
}

func TestSavedProgressThatNobodyGoesOnFromIsSupersededUntilItIsCollected(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		one, two := model.VersionID{Run: "demo", Policy: "main", Number: 1}, model.VersionID{Run: "demo", Policy: "main", Number: 2}
		put := func(id model.VersionID, basis string, updates int, manifest string) {
			require.NoError(t, s.PutProgress(t.Context(), model.Progress{VersionID: id, Basis: basis, Updates: updates, Manifest: manifest}))
		}
		put(one, "a", 1, "a1")
		put(two, "a", 1, "other")
		gone, kept := superseded(t, s, nil)
		require.Empty(t, gone)
		require.Empty(t, kept, "nobody is asked where nothing was superseded")

		put(one, "a", 2, "a2")
		put(one, "a", 2, "a2") // by another executor
		put(one, "a", 1, "late")
		put(one, "b", 1, "b1")
		broken := errors.New("killed")
		for _, result := range []error{broken, nil} {
			gone, kept = superseded(t, s, result)
			require.Equal(t, []string{"a1", "a2", "late"}, gone)
			require.ElementsMatch(t, []string{"b1", "other"}, kept)
		}
		gone, _ = superseded(t, s, nil)
		require.Empty(t, gone, "what was collected is forgotten")

		_, _, err := s.PutVersion(t.Context(), model.Version{VersionID: one, Manifest: "v1", Weights: "w"})
		require.NoError(t, err)
		put(one, "b", 2, "after")
		gone, kept = superseded(t, s, nil)
		require.Equal(t, []string{"after", "b1"}, gone)
		require.ElementsMatch(t, []string{"v1", "other"}, kept)
	})
}

func TestAVersionIsCollectedOnceAndKeepsItsRow(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		for n := range 5 {
			id := model.VersionID{Run: "demo", Policy: "main", Number: n}
			_, _, err := s.PutVersion(ctx, model.Version{VersionID: id, Parent: n - 1, Manifest: "m" + id.String(), Weights: "w", Metrics: map[string]float64{"x": 1}})
			require.NoError(t, err)
		}
		require.NoError(t, s.Promote(ctx, record.Promotion{Run: "demo", Policy: "main", DecisionID: "d0", Version: 0, Previous: -1}))
		require.NoError(t, s.PutEvaluation(ctx, record.Evaluation{Run: "demo", Policy: "main", EvaluationResult: record.EvaluationResult{Kind: record.Gate, Version: 3, Tasks: 1, Rollouts: 1}}))
		require.NoError(t, s.PutProgress(ctx, model.Progress{VersionID: model.VersionID{Run: "other", Policy: "main", Number: 1}, Basis: "b", Updates: 1, Manifest: "saved"}))
		var seen []record.Holdings
		for range 2 {
			require.NoError(t, s.MarkCollected(ctx, "demo", "main", func(h record.Holdings) []int {
				seen = append(seen, h)
				return []int{1, 2}
			}))
		}
		require.Equal(t, []int{0, 1, 2, 3, 4}, seen[0].Versions)
		require.Equal(t, []int{3}, seen[0].Undecided)
		require.Empty(t, seen[0].InUse)
		require.Len(t, seen[0].Promotions, 1)
		require.Equal(t, []int{0, 3, 4}, seen[1].Versions)

		collected, err := s.CollectedVersions(ctx, "demo", "main")
		require.NoError(t, err)
		require.Equal(t, []int{1, 2}, collected)
		v, err := s.Version(ctx, model.VersionID{Run: "demo", Policy: "main", Number: 1})
		require.NoError(t, err)
		require.False(t, v.Collected.IsZero())
		require.Equal(t, 1.0, v.Metrics["x"])
		err = s.Promote(ctx, record.Promotion{Run: "demo", Policy: "main", DecisionID: "d1", Version: 1, Previous: 0})
		require.ErrorIs(t, err, model.ErrCollected)
		require.NoError(t, s.Promote(ctx, record.Promotion{Run: "demo", Policy: "main", DecisionID: "d3", Version: 3, Previous: 0}))

		var kept []string
		require.NoError(t, s.WhileUnchanged(ctx, nil, func(manifests []string) error { kept = manifests; return nil }))
		require.ElementsMatch(t, []string{"mdemo@0", "mdemo@3", "mdemo@4", "saved"}, kept)
		broken := errors.New("broken")
		require.ErrorIs(t, s.WhileUnchanged(ctx, nil, func([]string) error { return broken }), broken)
	})
}

func TestSupersededProgressThatIsKeptOtherwiseIsForgotten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		put := func(run string, updates int, manifest string) {
			id := model.VersionID{Run: run, Policy: "main", Number: 1}
			require.NoError(t, s.PutProgress(ctx, model.Progress{VersionID: id, Basis: "b", Updates: updates, Manifest: manifest}))
		}
		// An equal run has saved one of the same states, and made a version of another.
		put("equal", 1, "both")
		_, _, err := s.PutVersion(ctx, model.Version{VersionID: model.VersionID{Run: "made", Policy: "main", Number: 1}, Manifest: "made", Weights: "w"})
		require.NoError(t, err)
		for n, manifest := range []string{"both", "made", "gone", "last"} {
			put("demo", n+1, manifest)
		}
		kept, _, err := s.KeptManifests(ctx)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"both", "made", "last"}, kept)
		collect := func(done, both []string) (left bool, seen []string) {
			left, err := s.CollectSuperseded(ctx, nil, func(superseded, _ []string) ([]string, []string, error) {
				seen = superseded
				return done, both, nil
			})
			require.NoError(t, err)
			return left, seen
		}
		left, seen := collect(nil, []string{"both", "made", "gone"})
		require.Equal(t, []string{"both", "gone", "made"}, seen)
		require.True(t, left)
		left, seen = collect(nil, []string{"gone"})
		require.Equal(t, []string{"gone"}, seen, "nothing keeps it any more, so its files have to go")
		require.False(t, left)

		// What kept the state is superseded, so it comes back.
		put("equal", 2, "later")
		left, seen = collect([]string{"both", "gone"}, nil)
		require.Equal(t, []string{"both", "gone"}, seen)
		require.False(t, left)
	})
}
