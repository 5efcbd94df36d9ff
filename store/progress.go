package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/store/database"
)

const (
	upsertUpdates = `INSERT INTO progress (run, policy, number, basis, updates, manifest) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (run, policy, number) DO UPDATE SET basis = excluded.basis, updates = excluded.updates, manifest = excluded.manifest
WHERE progress.basis <> excluded.basis OR progress.updates < excluded.updates`
	selectUpdates = `SELECT run, policy, number, basis, updates, manifest FROM progress WHERE run = $1 AND policy = $2 AND number = $3`
	deleteUpdates = `DELETE FROM progress WHERE run = $1 AND policy = $2 AND number = $3`
)

// PutProgress keeps p in the place of what is known of its version, unless that
// is further on the same basis, or the version stands.
func (s *Store) PutProgress(ctx context.Context, p model.Progress) error {
	err := s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error {
		_, err := database.One(t.Ctx, t, readVersion, selectVersion, p.Run, p.Policy, p.Number)
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		_, err = t.Exec(upsertUpdates, p.Run, p.Policy, p.Number, p.Basis, p.Updates, p.Manifest)
		return err
	})
	if err != nil {
		return fmt.Errorf("put progress of version %s: %w", p.VersionID, err)
	}
	return nil
}

// Progress returns how far the updates towards a version have come, or
// trace.ErrNotFound when nothing is known or the version stands.
func (s *Store) Progress(ctx context.Context, id model.VersionID) (model.Progress, error) {
	p, err := database.One(ctx, s.db.Read(), readProgress, selectUpdates, id.Run, id.Policy, id.Number)
	if err != nil {
		return model.Progress{}, fmt.Errorf("read progress of version %s: %w", id, known(err))
	}
	return p, nil
}

func readProgress(row database.Scan) (model.Progress, error) {
	var p model.Progress
	err := row(&p.Run, &p.Policy, &p.Number, &p.Basis, &p.Updates, &p.Manifest)
	return p, err
}
