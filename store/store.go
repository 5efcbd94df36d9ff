package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/store/database"
)

// Store stores runs. It is safe for concurrent use, and many processes may use the same
// database at the same time. Make one with Open.
type Store struct {
	// Files, if not nil, holds the files of versions; a version that lacks one of its
	// files is not recorded. Set it before the first use.
	Files Files

	db     database.DB
	log    *zap.Logger
	recent *recent
}

// Open connects to the store at url: "postgres://…", "sqlite:///absolute/path", or the
// path of an SQLite file. The file and its directory are created if they do not exist.
// Open makes no tables; Migrate does. It refuses a store with another schema than this
// program's. A file that this process may not write is opened for reading. If log is nil,
// nothing is logged.
func Open(ctx context.Context, url string, log *zap.Logger) (*Store, error) {
	if log == nil {
		log = zap.NewNop()
	}
	db, err := database.Open(ctx, url, log)
	if err != nil {
		return nil, err
	}
	return &Store{db: db, log: log, recent: &recent{}}, nil
}

// Migrate makes the tables of an empty store. Several processes may do so at once.
func (s *Store) Migrate(ctx context.Context) error {
	applied, err := s.db.Migrate(ctx)
	if err != nil {
		return fmt.Errorf("migrate store: %w", err)
	}
	if applied > 0 {
		s.log.Info("store migrated", zap.Int("migrations", applied))
	}
	return nil
}

// Ready returns nil if the store has its tables.
func (s *Store) Ready(ctx context.Context) error {
	has, err := s.db.Schema(ctx)
	if err == nil && has == 0 {
		err = errors.New("it has no tables: `fulgurite-worker migrate` makes them")
	}
	return err
}

// ErrUnusable is in the chain of an error that lasts until a person changes something: a
// bad address, a schema of another release, a damaged file. Waiting does not help.
var ErrUnusable = database.ErrUnusable

// FilePath returns the path of the SQLite file at an address, "" for PostgreSQL.
func FilePath(address string) (string, error) { return database.FilePath(address) }

// Redacted returns an address for logs: without any password.
func Redacted(address string) string { return database.Redacted(address) }

// CheckFile reads a store's SQLite file and reports damage as ErrUnusable.
func CheckFile(ctx context.Context, path string) error { return database.CheckFile(ctx, path) }

// Close waits for running writes and disconnects from the database.
func (s *Store) Close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// orNow returns t, or the current time if t is zero.
func orNow(t time.Time) time.Time {
	if t.IsZero() {
		return time.Now().UTC()
	}
	return t
}

// encode returns v as JSON text; inJSON decodes it.
func encode(what string, v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", what, err)
	}
	return string(b), nil
}

// inJSON is a column with JSON text, which is decoded into the value that to points to.
type inJSON struct{ to any }

// Scan implements sql.Scanner.
func (c inJSON) Scan(src any) error {
	text, ok := src.(string)
	if !ok {
		return fmt.Errorf("%T is not a text column", src)
	}
	return json.Unmarshal([]byte(text), c.to)
}

// at returns t as the value of its column.
func at(t *time.Time) *database.Moment { return (*database.Moment)(t) }

// raw returns JSON text as a message, nil if it is empty.
func raw(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}
