package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/store/database"
)

const (
	insertIdentity = `INSERT INTO identity (one, id, mark) VALUES (1, $1, 0) ON CONFLICT DO NOTHING`
	selectIdentity = `SELECT id, mark FROM identity`
	updateMark     = `UPDATE identity SET mark = $1`
)

// identity is the row that says which store this is. It is zero before SetID.
type identity struct {
	id   string
	mark int64
}

func (s *Store) identity(ctx context.Context) (identity, error) {
	i, err := database.One(ctx, s.db.Read(), func(row database.Scan) (i identity, err error) {
		err = row(&i.id, &i.mark)
		return i, err
	}, selectIdentity)
	if errors.Is(err, sql.ErrNoRows) {
		return identity{}, nil
	}
	if err != nil {
		return i, fmt.Errorf("read the store's id: %w", err)
	}
	return i, nil
}

// ID returns the store's id, which the directory of its blobs has too. It is empty before
// SetID.
func (s *Store) ID(ctx context.Context) (string, error) {
	i, err := s.identity(ctx)
	return i.id, err
}

// SetID gives a store without an id this one. A store that has an id keeps it.
func (s *Store) SetID(ctx context.Context, id string) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		_, err := t.Exec(insertIdentity, id)
		return err
	})
	if err != nil {
		return fmt.Errorf("give the store an id: %w", err)
	}
	return nil
}

// Mark returns the number that SetMark has stored, at first 0.
func (s *Store) Mark(ctx context.Context) (int64, error) {
	i, err := s.identity(ctx)
	return i.mark, err
}

// SetMark stores a number in a store with an id. It survives a loss of power, and so do all
// writes before it.
func (s *Store) SetMark(ctx context.Context, mark int64) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		_, err := t.Exec(updateMark, mark)
		return err
	})
	if err != nil {
		return fmt.Errorf("store the mark %d: %w", mark, err)
	}
	return nil
}
