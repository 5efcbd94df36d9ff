// Package database is the SQL database that a store uses: SQLite or PostgreSQL, with
// transactions of two durabilities, migrations, and lists of columns by which rows are
// written and read. It knows no table by name; package store does.
package database

import (
	"context"
	"errors"
	"fmt"

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
	// Schema returns the number of the database's schema, 0 if it has no tables.
	Schema(ctx context.Context) (int, error)
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
// directory. A file that exists but can't be written is opened for reading. A database
// with another schema than this program's is refused; one without tables is not.
func Open(ctx context.Context, url string, log *zap.Logger) (DB, error) {
	path, err := FilePath(url)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	var db DB
	if path == "" {
		path = Redacted(url)
		db, err = openPostgres(ctx, url, log)
	} else {
		db, err = openSQLite(ctx, path, log)
	}
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, withoutSecrets(err, url))
	}
	has, err := db.Schema(ctx)
	if err == nil {
		err = checkSchema(has)
	}
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, errors.Join(err, db.Close()))
	}
	return db, nil
}
