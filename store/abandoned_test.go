package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// abandoned returns the files that CollectAbandoned passes on, of those noted before now.
func abandoned(t *testing.T, s *store.Store, result error) (gone, pending, kept []string) {
	t.Helper()
	left, err := s.CollectAbandoned(t.Context(), time.Now(), nil, func(g, p, k []string) ([]string, error) {
		gone, pending, kept = g, p, k
		return g, result
	})
	require.ErrorIs(t, err, result)
	require.False(t, left)
	return gone, pending, kept
}

func TestAPendingFileIsAbandonedWhenNobodyMakesItsVersion(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		for _, run := range []string{"ends", "goes-on"} {
			_, _, err := s.CreateRun(t.Context(), record.Run{Name: run})
			require.NoError(t, err)
		}
		note := func(run string, number int, digest string) {
			require.NoError(t, s.NoteFile(t.Context(), model.VersionID{Run: run, Policy: "main", Number: number}, digest))
		}
		note("ends", 0, "base")
		note("ends", 0, "base")
		note("ends", 0, "own")
		note("goes-on", 0, "base")
		note("goes-on", 0, "lost")
		note("goes-on", 1, "later")
		gone, _, _ := abandoned(t, s, nil)
		require.Empty(t, gone, "all may be made yet")
		note("absent", 0, "unknown")
		gone, _, _ = abandoned(t, s, nil)
		require.Equal(t, []string{"unknown"}, gone, "no run makes it")

		require.NoError(t, s.FinishRun(t.Context(), "ends", record.Failed, nil))
		_, err := s.CollectAbandoned(t.Context(), time.Now().Add(-time.Hour), nil, func(_, _, _ []string) ([]string, error) {
			return nil, errors.New("whoever writes it may not know yet")
		})
		require.NoError(t, err)
		broken := errors.New("killed")
		for _, result := range []error{broken, nil} {
			gone, pending, kept := abandoned(t, s, result)
			require.Equal(t, []string{"base", "own"}, gone)
			require.ElementsMatch(t, []string{"base", "lost", "later"}, pending)
			require.Empty(t, kept)
		}
		gone, _, _ = abandoned(t, s, nil)
		require.Empty(t, gone, "what was collected is forgotten")

		_, _, err = s.PutVersion(t.Context(), model.Version{VersionID: model.VersionID{Run: "goes-on", Policy: "main"}, Manifest: "m0", Weights: "w"})
		require.NoError(t, err)
		gone, pending, kept := abandoned(t, s, nil)
		require.Equal(t, []string{"base", "lost"}, gone, "those that the manifest does not name go")
		require.ElementsMatch(t, []string{"later"}, pending)
		require.Equal(t, []string{"m0"}, kept)

		note("goes-on", 0, "late") // by a slow executor
		gone, _, _ = abandoned(t, s, nil)
		require.Equal(t, []string{"late"}, gone)
	})
}
