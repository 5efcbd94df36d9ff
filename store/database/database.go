// Package database is the SQL database that a store uses: SQLite or PostgreSQL, with
// transactions of two durabilities, migrations, and lists of columns by which rows are
// written and read. It knows no table by name; package store does.
package database

import (
	"context"
	"fmt"
	"strings"

	"go.uber.org/zap"
)

// DB is the interface to the operations in which the two databases differ. It is safe for
// concurrent use.
type DB interface {
	// Read returns the connection for queries outside of a transaction.
	Read() Querier
	// Write runs op in a transaction that commits as durably as asked, and
	// returns op's error or the commit's. op may run more than once.
	Write(ctx context.Context, d Durability, op func(Tx) error) error
	// Migrate makes the tables of an empty database, and reports how many migrations that
	// took: 0 if the tables exist.
	Migrate(ctx context.Context) (applied int, err error)
	// Clock returns an SQL expression for the database's current time, in nanoseconds
	// since 1970.
	Clock() string
	// Close waits for running writes and disconnects from the database.
	Close() error
}

// Durability says which failures an acknowledged write survives.
type Durability int

// The durabilities.
const (
	SurvivesKill      Durability = iota // a kill of any process
	SurvivesPowerLoss                   // a power loss of the machine; all earlier writes then survive it, too
)

// Open connects to the database at url: "postgres://…", "sqlite:///absolute/path",
// or the path of an SQLite file, which is made if it does not exist, with its
// directory.
func Open(ctx context.Context, url string, log *zap.Logger) (DB, error) {
	if strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://") {
		db, err := openPostgres(ctx, url, log)
		if err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
		return db, nil
	}
	path := strings.TrimPrefix(url, "sqlite://")
	if path == "" || strings.Contains(path, "://") || strings.HasPrefix(path, ":") {
		return nil, fmt.Errorf("open store: %q is neither postgres://… nor sqlite:///path nor a path", url)
	}
	db, err := openSQLite(ctx, path, log)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	return db, nil
}
