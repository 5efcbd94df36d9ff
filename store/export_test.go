package store

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// SyncLevel is the level of synchronous at which an SQLite store last wrote.
func SyncLevel(t *testing.T, s *Store) int {
	t.Helper()
	var level int
	row := s.backend.(*sqlite).conn.QueryRowContext(t.Context(), "PRAGMA synchronous")
	require.NoError(t, row.Scan(&level))
	return level
}

// LimitPages lets an SQLite file grow to that many pages, as a disk that fills
// up would.
func LimitPages(t *testing.T, s *Store, pages int) {
	t.Helper()
	_, err := s.backend.(*sqlite).conn.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages))
	require.NoError(t, err)
}

// Together is an SQLite store of which the next n writes, which must be made at
// once, are one commit.
func Together(s *Store, n int) *Store {
	return &Store{&together{sqlite: s.backend.(*sqlite), n: n}, s.log, s.recent}
}

type together struct {
	*sqlite
	mu    sync.Mutex
	n     int
	batch []*pending
}

func (g *together) write(ctx context.Context, d durability, op func(tx) error) error {
	p := &pending{ctx: ctx, full: d == survivesPowerLoss, op: op, done: make(chan error, 1)}
	g.mu.Lock()
	if g.batch = append(g.batch, p); len(g.batch) == g.n {
		g.commit(g.batch) // its own goroutine has nothing to do meanwhile
	}
	g.mu.Unlock()
	return <-p.done
}
