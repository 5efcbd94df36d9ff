package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pressly/goose/v3"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/store/database"
)

// Store keeps runs. It is safe for concurrent use, and by many processes at
// once. Make one with Open.
type Store struct {
	// Files, if not nil, are where the files of versions are: a version that lacks one
	// is not put on record. Set it before the first use.
	Files Files

	db     database.DB
	log    *zap.Logger
	recent *recent
}

// Open connects to the store at url: "postgres://…", "sqlite:///absolute/path",
// or the path of an SQLite file, which is made if it does not exist, with its
// directory. The schema is brought up to date by Migrate, not by Open. A nil
// log is silent.
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

// Migrate brings the schema up to date. Several processes may do so at once.
func (s *Store) Migrate(ctx context.Context) error {
	applied, err := s.db.Migrate(ctx, goose.NewGoMigration(bodiesMigration, &goose.GoFunc{RunTx: moveBodies}, nil))
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
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// orNow is t, or the present where t is not given.
func orNow(t time.Time) time.Time {
	if t.IsZero() {
		return time.Now().UTC()
	}
	return t
}

// encode is v as JSON text; inJSON reads it back.
func encode(what string, v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", what, err)
	}
	return string(b), nil
}

// inJSON is a column of JSON text that is read into what to points to.
type inJSON struct{ to any }

// Scan is for database/sql.
func (c inJSON) Scan(src any) error {
	text, ok := src.(string)
	if !ok {
		return fmt.Errorf("%T is no text column", src)
	}
	return json.Unmarshal([]byte(text), c.to)
}

// at is a time as its column has it.
func at(t *time.Time) *database.Moment { return (*database.Moment)(t) }

// raw returns JSON text as a message, nil if it is empty.
func raw(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}
