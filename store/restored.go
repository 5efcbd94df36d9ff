package store

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/fulgurite/fulgurite/store/database"
)

// Snapshot is the store in a PostgreSQL database as it was at one moment: what its methods that
// read return does not change. It must not be written to. It blocks no writer.
type Snapshot struct {
	*Store

	snapshot *database.Snapshot
}

// snapshotDB is a database that is read as it was.
type snapshotDB struct {
	database.DB
	snapshot *database.Snapshot
}

// Read implements database.DB.
func (s snapshotDB) Read() database.Querier { return s.snapshot.Read() }

// ReadOften implements database.DB.
func (s snapshotDB) ReadOften() database.Querier { return s.snapshot.Read() }

// Write implements database.DB.
func (snapshotDB) Write(context.Context, database.Durability, func(database.Tx) error) error {
	return errors.New("a snapshot can't be written to")
}

// Snapshot begins to read the store as it is now. The store must be one in PostgreSQL, and stay
// open until the snapshot is closed.
func (s *Store) Snapshot(ctx context.Context) (*Snapshot, error) {
	db := s.db
	if timed, ok := db.(timedDB); ok {
		db = timed.DB
	}
	snapshot, err := database.TakeSnapshot(ctx, db)
	if err != nil {
		return nil, err
	}
	return &Snapshot{Store: &Store{db: snapshotDB{db, snapshot}, log: s.log, recent: &recent{}, postgres: true}, snapshot: snapshot}, nil
}

// Tables returns the tables with all rows of the store, by name.
func (s *Snapshot) Tables(ctx context.Context) ([]database.CopiedTable, error) {
	return s.snapshot.Tables(ctx)
}

// Copy writes the rows of a table for database.Staged.Load, and returns how many there are.
func (s *Snapshot) Copy(ctx context.Context, t database.CopiedTable, to io.Writer) (rows int64, err error) {
	return s.snapshot.Copy(ctx, t, to)
}

// Ping keeps the connection from being taken for unused.
func (s *Snapshot) Ping(ctx context.Context) error { return s.snapshot.Ping(ctx) }

// Close ends the reading. The store stays open.
func (s *Snapshot) Close() error { return s.snapshot.Close() }

const (
	// unmendedMark is the mark of a store that was restored and whose runs have not been
	// compared with Temporal since. No other mark is negative.
	unmendedMark = -1

	mendMark  = `UPDATE identity SET mark = 0 WHERE mark = $1`
	endLeases = `UPDATE leases SET expires = 0`
)

// SetRestored records that the store was restored from a backup: its leases are those of
// processes that are gone, and Temporal may know more or less of its runs than it does. Mended
// reports false from then on, until SetMended or SetMark.
func (s *Store) SetRestored(ctx context.Context) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if _, err := t.Exec(endLeases); err != nil {
			return err
		}
		_, err := t.Exec(updateMark, unmendedMark)
		return err
	})
	if err != nil {
		return fmt.Errorf("record that the store was restored: %w", err)
	}
	return nil
}

// SetMended records that the runs of a restored store go together with Temporal again. A store
// with another mark keeps it.
func (s *Store) SetMended(ctx context.Context) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		_, err := t.Exec(mendMark, unmendedMark)
		return err
	})
	if err != nil {
		return fmt.Errorf("record that the store goes together with Temporal: %w", err)
	}
	return nil
}

// Mended reports whether the runs of the store and those of Temporal go together, as far as the
// store knows. It is false after SetRestored.
func (s *Store) Mended(ctx context.Context) (bool, error) {
	mark, err := s.Mark(ctx)
	return mark >= 0, err
}
