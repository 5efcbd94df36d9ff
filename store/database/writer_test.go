package database_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/store/database"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open makes an SQLite database with a table of notes.
func open(t *testing.T) database.DB {
	t.Helper()
	db, err := database.Open(t.Context(), filepath.Join(t.TempDir(), "notes.db"), zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, db.Write(t.Context(), database.SurvivesKill, func(tx database.Tx) error {
		_, err := tx.Exec("CREATE TABLE notes (id INTEGER PRIMARY KEY, text BLOB NOT NULL)")
		return err
	}))
	return db
}

func put(t *testing.T, db database.DB, d database.Durability, id int, text []byte, then error) error {
	t.Helper()
	return db.Write(t.Context(), d, func(tx database.Tx) error {
		if _, err := tx.Exec("INSERT INTO notes (id, text) VALUES ($1, $2)", id, text); err != nil {
			return err
		}
		return then
	})
}

func ids(t *testing.T, db database.DB) []int {
	t.Helper()
	all, err := database.List(t.Context(), db.Read(), database.Scalar[int], "SELECT id FROM notes ORDER BY id")
	require.NoError(t, err)
	return all
}

// Of the writes in one commit, only the bad ones may fail, and no part of them may be
// kept.
func TestFailedWriteLeavesThoseBesideItAlone(t *testing.T) {
	t.Parallel()
	db := open(t)
	errs := make([]error, 60)
	at := database.Together(db, len(errs))
	refused := errors.New("refused")
	var g errgroup.Group
	for i := range errs {
		g.Go(func() error {
			switch i % 3 {
			case 0:
				errs[i] = put(t, at, database.SurvivesKill, i, []byte{1}, nil)
			case 1:
				errs[i] = put(t, at, database.SurvivesKill, i, []byte{1}, refused)
			default: // the first of them is recorded, the others conflict
				errs[i] = put(t, at, database.SurvivesKill, 1000, []byte{1}, nil)
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	var want []int
	conflicts := 0
	for i, err := range errs {
		switch {
		case i%3 == 0:
			require.NoError(t, err)
			want = append(want, i)
		case i%3 == 1:
			require.ErrorIs(t, err, refused)
		case err != nil:
			require.ErrorContains(t, err, "UNIQUE")
			conflicts++
		}
	}
	require.Equal(t, 19, conflicts)
	require.Equal(t, append(want, 1000), ids(t, db))
}

// While the disk is full, writes fail, and no write is acknowledged that is not on
// record. Writing continues when there is room again.
func TestFullDiskAcknowledgesNothingFalsely(t *testing.T) {
	t.Parallel()
	db := open(t)
	database.LimitPages(t, db, 200)
	errs := make([]error, 40)
	var g errgroup.Group
	for i := range errs {
		g.Go(func() error {
			errs[i] = put(t, db, database.SurvivesKill, i, make([]byte, 30_000), nil)
			return nil
		})
	}
	require.NoError(t, g.Wait())
	var acknowledged []int
	for i, err := range errs {
		if err == nil {
			acknowledged = append(acknowledged, i)
		} else {
			require.ErrorContains(t, err, "full")
		}
	}
	require.Less(t, len(acknowledged), 40)
	require.Equal(t, acknowledged, ids(t, db))
	database.LimitPages(t, db, 1<<30)
	for i, err := range errs {
		if err != nil {
			require.NoError(t, put(t, db, database.SurvivesKill, i, make([]byte, 30_000), nil))
		}
	}
	require.Len(t, ids(t, db), 40)
}

// One commit in FULL mode syncs the log with everything written before. Waiting for the
// disk is not worthwhile for a write that only has to survive a killed process.
func TestWriteIsAsDurableAsAsked(t *testing.T) {
	t.Parallel()
	db := open(t)
	const normal, full = 1, 2
	for i, d := range []database.Durability{database.SurvivesKill, database.SurvivesPowerLoss, database.SurvivesPowerLoss, database.SurvivesKill} {
		require.NoError(t, put(t, db, d, i, []byte{1}, nil))
		require.Equal(t, map[database.Durability]int{database.SurvivesKill: normal, database.SurvivesPowerLoss: full}[d], database.SyncLevel(t, db))
	}
}
