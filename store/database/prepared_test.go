package database_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/store/database"
)

const countNotes = "SELECT COUNT(*) FROM notes WHERE id >= $1"

func count(ctx context.Context, db database.DB, from int) (int, error) {
	return database.One(ctx, db.ReadOften(), database.Scalar[int], countNotes, from)
}

func TestAQueryThatIsMadeOftenSeesEveryCommit(t *testing.T) {
	t.Parallel()
	db := open(t)
	for i := range 20 {
		require.NoError(t, put(t, db, database.SurvivesKill, i, []byte{1}, nil))
		var g errgroup.Group
		for range 20 { // more than there are connections
			g.Go(func() error {
				n, err := count(t.Context(), db, 0)
				if err == nil && n != i+1 {
					t.Errorf("%d notes, not %d", n, i+1)
				}
				return err
			})
		}
		require.NoError(t, g.Wait())
	}
	n, err := count(t.Context(), db, 15)
	require.NoError(t, err)
	require.Equal(t, 5, n)
}

// A statement that is kept must not keep the log from being emptied.
func TestAQueryThatIsMadeOftenKeepsNothingOpen(t *testing.T) {
	t.Parallel()
	db := open(t)
	require.NoError(t, put(t, db, database.SurvivesKill, 1, []byte{1}, nil))
	_, err := count(t.Context(), db, 0)
	require.NoError(t, err)
	_, err = database.One(t.Context(), db.ReadOften(), database.Scalar[int], "SELECT id FROM notes WHERE id > $1", 7)
	require.Error(t, err, "there is none")
	require.NoError(t, db.Scrub(t.Context(), false))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = count(ended, db, 0)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, db.Scrub(t.Context(), false))
	_, err = database.One(t.Context(), db.ReadOften(), database.Scalar[int], "SELECT nothing")
	require.ErrorContains(t, err, "nothing")
	require.NoError(t, put(t, db, database.SurvivesKill, 2, []byte{1}, nil))
	n, err := count(t.Context(), db, 0)
	require.NoError(t, err)
	require.Equal(t, 2, n)
}
