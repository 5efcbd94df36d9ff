package store_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/store"
)

func TestARemovalFollowsWhatItsLastTransactionTook(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rows, changed int
		took          time.Duration
		want          int
	}{
		"short and full":             {16, 16, time.Millisecond, 32},
		"short, but cut by its time": {1000, 100, 12 * time.Millisecond, 200},
		"as long as it should be":    {100, 100, 20 * time.Millisecond, 100},
		"too long":                   {1000, 1000, 31 * time.Millisecond, 500},
		"ten times too long":         {1000, 1000, 200 * time.Millisecond, 100},
		"cut after a row":            {1000, 1, 12 * time.Millisecond, 16},
		"a few rows took very long":  {1000, 10, 400 * time.Millisecond, 1},
		"one row takes too long":     {1, 1, time.Second, 1},
		"the most":                   {4096, 4096, time.Millisecond, 4096},
	} {
		require.Equal(t, c.want, store.NextRows(c.rows, c.changed, c.took), name)
	}
}

// It looks for rows before it asks for SQLite's lock, so nobody waits for that.
func TestARemovalThatFindsNothingTakesNoLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := store.Open(t.Context(), path, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(t.Context()))
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)

	limited, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, s.RemoveBodies(limited, "demo"))
	require.NoError(t, s.RemoveRows(limited, "demo"))
	_, err = conn.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
}
