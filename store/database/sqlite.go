package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/pressly/goose/v3"
	"go.uber.org/zap"
	driver "modernc.org/sqlite" // registers the driver "sqlite"
	lib "modernc.org/sqlite/lib"
)

// busyTimeout is how long, in milliseconds, a statement waits for another
// process that writes. Transactions last milliseconds; a checkpoint of a large
// log on a slow disk takes seconds.
const busyTimeout = 15000

// readers bounds the connections that read at once.
const readers = 8

// sqlite is a store in one file. Next to it SQLite keeps its log (-wal) and an index of
// the log (-shm). All writes of this process go through one writer. Readers see the last
// commit and never wait.
type sqlite struct {
	path  string
	reads *sql.DB
	*writer
}

func openSQLite(ctx context.Context, path string, log *zap.Logger) (*sqlite, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	writes, err := sql.Open("sqlite", sqliteDSN(path, "wal_autocheckpoint(0)"))
	if err != nil {
		return nil, err
	}
	conn, err := firstConn(ctx, writes)
	if err != nil {
		return nil, errors.Join(err, writes.Close())
	}
	checkpoints, err := newCheckpointer(path, log)
	if err != nil {
		return nil, errors.Join(err, conn.Close(), writes.Close())
	}
	w := newWriter(writes, conn, checkpoints)
	reads, err := sql.Open("sqlite", sqliteDSN(path, "query_only(1)"))
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	reads.SetMaxOpenConns(readers)
	reads.SetMaxIdleConns(readers)
	return &sqlite{path, reads, w}, nil
}

// firstConn opens a connection, and waits while other processes open the same new file.
// It has to wait itself, because SQLite does not wait while another connection turns on a
// new file's log. Later connections find the log turned on.
func firstConn(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	for began := time.Now(); ; {
		conn, err := db.Conn(ctx)
		var failed *driver.Error
		busy := errors.As(err, &failed) && failed.Code()&primaryCode == lib.SQLITE_BUSY
		if !busy || time.Since(began) > busyTimeout*time.Millisecond {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// primaryCode masks the bits of an error code that give its kind; the others give
// details.
const primaryCode = 0xff

// sqliteDSN returns a data source name in which no character of path is read as an
// option.
func sqliteDSN(path string, pragmas ...string) string {
	pragmas = append([]string{
		fmt.Sprintf("busy_timeout(%d)", busyTimeout), "journal_mode(wal)", "synchronous(normal)", "foreign_keys(1)",
	}, pragmas...)
	u := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: url.Values{"_pragma": pragmas, "_txlock": {"immediate"}}.Encode()}
	return u.String()
}

func (s *sqlite) Read() Querier { return s.reads }

// Migrate tries again after an error. Another process may have applied the same migration
// between this process's check and its own attempt; SQLite lets only one of them commit.
// That can happen with each migration, and with the table of applied migrations.
func (s *sqlite) Migrate(ctx context.Context) (int, error) {
	db, err := sql.Open("sqlite", sqliteDSN(s.path))
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	all, err := migrations.ReadDir("migrations")
	if err != nil {
		return 0, err
	}
	var applied int
	for range len(all) + 2 {
		if applied, err = applyMigrations(ctx, db, goose.DialectSQLite3); err == nil {
			return applied, nil
		}
	}
	return applied, err
}

// Clock ticks in milliseconds, which is enough for leases.
func (s *sqlite) Clock() string { return `CAST(unixepoch('subsec') * 1000 AS INTEGER) * 1000000` }

func (s *sqlite) Close() error {
	return errors.Join(s.reads.Close(), s.writer.Close())
}
