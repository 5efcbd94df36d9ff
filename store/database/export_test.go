package database

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// SyncLevel returns the value of PRAGMA synchronous of an SQLite database's last write.
func SyncLevel(t *testing.T, db DB) int {
	t.Helper()
	var level int
	row := db.(*sqlite).conn.QueryRowContext(t.Context(), "PRAGMA synchronous")
	require.NoError(t, row.Scan(&level))
	return level
}

// LimitPages lets an SQLite file grow to that many pages, as a disk that fills
// up would.
func LimitPages(t *testing.T, db DB, pages int) {
	t.Helper()
	_, err := db.(*sqlite).conn.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages))
	require.NoError(t, err)
}

// Together returns an SQLite database that commits the next n writes together. They must
// be made at the same time.
func Together(db DB, n int) DB { return &together{sqlite: db.(*sqlite), n: n} }

type together struct {
	*sqlite
	mu    sync.Mutex
	n     int
	batch []*pending
}

func (g *together) Write(ctx context.Context, d Durability, op func(Tx) error) error {
	p := &pending{ctx: ctx, full: d == SurvivesPowerLoss, op: op, done: make(chan error, 1)}
	g.mu.Lock()
	if g.batch = append(g.batch, p); len(g.batch) == g.n {
		g.commit(g.batch) // the writer's own goroutine is idle meanwhile
	}
	g.mu.Unlock()
	return <-p.done
}

// CopyLogEvery makes an SQLite database copy its log into its file after that many pages.
// Nothing may have been written to the database before.
func CopyLogEvery(db DB, pages int) { db.(*sqlite).checkpoints.every = pages }

// TruncateLog copies the whole log of an SQLite database and tries once to cut it to nothing.
func TruncateLog(t *testing.T, db DB) (done bool) {
	t.Helper()
	c := db.(*sqlite).checkpoints
	c.copying.Lock()
	defer c.copying.Unlock()
	_, _, err := copyLog(t.Context(), c.db)
	require.NoError(t, err)
	done, err = truncateLog(t.Context(), c.db)
	require.NoError(t, err)
	return done
}

// CutLog copies the whole log of an SQLite database and cuts one piece off its file.
func CutLog(t *testing.T, db DB) {
	t.Helper()
	s := db.(*sqlite)
	s.checkpoints.copying.Lock() // it uses both connections
	defer s.checkpoints.copying.Unlock()
	const page = 4096 // SQLite's default
	for synced := false; !synced; {
		var err error
		synced, err = copyAndSync(t.Context(), s.checkpoints.db, maxHeld, func(length int) error { return cutLog(s.path, length, page) })
		if !errors.Is(err, errCopying) {
			require.NoError(t, err)
		}
	}
}
