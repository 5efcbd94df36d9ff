package store

import (
	"context"
	"fmt"
	"strings"

	"go.uber.org/zap"
)

// Store keeps runs. It is safe for concurrent use, and by many processes at
// once. Make one with Open.
type Store struct {
	backend
	log    *zap.Logger
	recent *recent
}

// backend is what the two databases do differently.
type backend interface {
	// read is where queries outside a transaction go.
	read() querier
	// write runs op in a transaction that commits as durably as asked, and
	// returns op's error or the commit's. op may run more than once.
	write(ctx context.Context, d durability, op func(tx) error) error
	migrate(ctx context.Context) (applied int, err error)
	// clock is the database's present as an expression, in nanoseconds since 1970.
	clock() string
	close() error
}

// durability is what an acknowledged write survives.
type durability int

const (
	survivesKill      durability = iota // of any process
	survivesPowerLoss                   // of the machine, together with all earlier writes
)

// Open connects to the store at url: "postgres://…", "sqlite:///absolute/path",
// or the path of an SQLite file, which is made if it does not exist, with its
// directory. The schema is brought up to date by Migrate, not by Open. A nil
// log is silent.
func Open(ctx context.Context, url string, log *zap.Logger) (*Store, error) {
	if log == nil {
		log = zap.NewNop()
	}
	if strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://") {
		b, err := openPostgres(ctx, url, log)
		if err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
		return &Store{b, log, &recent{}}, nil
	}
	path := strings.TrimPrefix(url, "sqlite://")
	if path == "" || strings.Contains(path, "://") || strings.HasPrefix(path, ":") {
		return nil, fmt.Errorf("open store: %q is neither postgres://… nor sqlite:///path nor a path", url)
	}
	b, err := openSQLite(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	return &Store{b, log, &recent{}}, nil
}

// Migrate brings the schema up to date. Several processes may do so at once.
func (s *Store) Migrate(ctx context.Context) error {
	applied, err := s.migrate(ctx)
	if err != nil {
		return fmt.Errorf("migrate store: %w", err)
	}
	if applied > 0 {
		s.log.Info("store migrated", zap.Int("migrations", applied))
	}
	return nil
}

// Close waits for writes under way and lets go of the database.
func (s *Store) Close() error {
	if err := s.close(); err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}
