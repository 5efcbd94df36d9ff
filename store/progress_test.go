package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestProgressOnlyGoesForwardOnOneBasis(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		id := model.VersionID{Run: "demo", Policy: "main", Number: 3}
		_, err := s.Progress(t.Context(), id)
		require.ErrorIs(t, err, record.ErrNotFound)
		for _, c := range []struct {
			put, want model.Progress
		}{
			{model.Progress{VersionID: id, Basis: "a", Updates: 4, Manifest: "m4"}, model.Progress{VersionID: id, Basis: "a", Updates: 4, Manifest: "m4"}},
			{model.Progress{VersionID: id, Basis: "a", Updates: 7, Manifest: "m7"}, model.Progress{VersionID: id, Basis: "a", Updates: 7, Manifest: "m7"}},
			{model.Progress{VersionID: id, Basis: "a", Updates: 5, Manifest: "late"}, model.Progress{VersionID: id, Basis: "a", Updates: 7, Manifest: "m7"}},
			{model.Progress{VersionID: id, Basis: "b", Updates: 1, Manifest: "n1"}, model.Progress{VersionID: id, Basis: "b", Updates: 1, Manifest: "n1"}},
		} {
			require.NoError(t, s.PutProgress(t.Context(), c.put))
			got, err := s.Progress(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		}
	})
}

func TestAVersionThatStandsEndsItsProgress(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		id := model.VersionID{Run: "demo", Policy: "main", Number: 3}
		other := model.Progress{VersionID: model.VersionID{Run: "demo", Policy: "main", Number: 4}, Basis: "a", Updates: 1, Manifest: "o"}
		require.NoError(t, s.PutProgress(t.Context(), model.Progress{VersionID: id, Basis: "a", Updates: 4, Manifest: "m"}))
		require.NoError(t, s.PutProgress(t.Context(), other))
		_, _, err := s.PutVersion(t.Context(), model.Version{VersionID: id, Weights: "w"})
		require.NoError(t, err)
		_, err = s.Progress(t.Context(), id)
		require.ErrorIs(t, err, record.ErrNotFound)

		// Progress that arrives after the version is not kept.
		require.NoError(t, s.PutProgress(t.Context(), model.Progress{VersionID: id, Basis: "a", Updates: 5, Manifest: "m"}))
		_, err = s.Progress(t.Context(), id)
		require.ErrorIs(t, err, record.ErrNotFound)
		got, err := s.Progress(t.Context(), other.VersionID)
		require.NoError(t, err)
		require.Equal(t, other, got)
	})
}
