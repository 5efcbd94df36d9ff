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
	insertVersion = `INSERT INTO versions (run, policy, number, parent, manifest, weights, batch, scores, fingerprint, metrics, created, begun, work)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT DO NOTHING`
	selectVersions = `SELECT run, policy, number, parent, manifest, weights, batch, scores, fingerprint, metrics, created, collected, begun, work FROM versions WHERE run = $1 AND policy = $2`
	selectVersion  = selectVersions + ` AND number = $3`
)

// PutVersion stores v unless there is a version with its id. It returns the version with
// that id and whether this call stored it. The caller has to decide whether a version
// that another executor stored is acceptable (the same weights, or any). PutVersion
// forgets the progress towards the version, and that its files were pending. It returns
// ErrFileGone if the version lacks a file. If Created is zero, it is set to the current
// time.
func (s *Store) PutVersion(ctx context.Context, v model.Version) (model.Version, bool, error) {
	metrics, err := encode("metrics", v.Metrics)
	if err != nil {
		return model.Version{}, false, fmt.Errorf("put version %s: %w", v.VersionID, err)
	}
	work, err := encode("work", v.Work)
	if err != nil {
		return model.Version{}, false, fmt.Errorf("put version %s: %w", v.VersionID, err)
	}
	args := []any{v.Run, v.Policy, v.Number, v.Parent, v.Manifest, v.Weights, v.Batch, v.Scores, v.Fingerprint, metrics, database.Nanos(orNow(v.Created)), database.Nanos(v.Begun), work}
	var stored model.Version
	var created bool
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) (err error) {
		stored, created, err = database.InsertOrFind(t, insertVersion, args, func() (model.Version, error) {
			return database.One(t.Ctx, t, readVersion, selectVersion, v.Run, v.Policy, v.Number)
		})
		var named []string
		if err == nil && created {
			named, err = s.complete(t.Ctx, v)
		}
		if err == nil {
			err = s.recorded(t, v, named)
		}
		if err != nil {
			return err
		}
		if _, err := t.Exec(supersedeUpdates, v.Run, v.Policy, v.Number); err != nil {
			return err
		}
		_, err = t.Exec(deleteUpdates, v.Run, v.Policy, v.Number)
		return err
	})
	if err != nil {
		return model.Version{}, false, fmt.Errorf("put version %s: %w", v.VersionID, err)
	}
	return stored, created, nil
}

// Version returns the version of that id, or trace.ErrNotFound.
func (s *Store) Version(ctx context.Context, id model.VersionID) (model.Version, error) {
	v, err := database.One(ctx, s.db.Read(), readVersion, selectVersion, id.Run, id.Policy, id.Number)
	if err != nil {
		return model.Version{}, fmt.Errorf("read version %s: %w", id, notFound(err))
	}
	return v, nil
}

// Versions returns the versions of a policy by number. It is no error if there are none.
func (s *Store) Versions(ctx context.Context, run, policy string) ([]model.Version, error) {
	all, err := database.List(ctx, s.db.Read(), readVersion, selectVersions+` ORDER BY number`, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list versions of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

// VersionsBetween returns the versions of a policy with numbers from (inclusive) to to
// (exclusive), in order. It is no error if there are none.
func (s *Store) VersionsBetween(ctx context.Context, run, policy string, from, to int) ([]model.Version, error) {
	all, err := database.List(ctx, s.db.Read(), readVersion, selectVersions+` AND number >= $3 AND number < $4 ORDER BY number`, run, policy, from, to)
	if err != nil {
		return nil, fmt.Errorf("list versions %d to %d of %s/%s: %w", from, to, run, policy, err)
	}
	return all, nil
}

// LastVersion returns the newest version of a policy, or trace.ErrNotFound.
func (s *Store) LastVersion(ctx context.Context, run, policy string) (model.Version, error) {
	v, err := database.One(ctx, s.db.Read(), readVersion, selectVersions+` ORDER BY number DESC LIMIT 1`, run, policy)
	if err != nil {
		return model.Version{}, fmt.Errorf("read the last version of %s/%s: %w", run, policy, notFound(err))
	}
	return v, nil
}

func readVersion(row database.Scan) (v model.Version, err error) {
	err = row(&v.Run, &v.Policy, &v.Number, &v.Parent, &v.Manifest, &v.Weights, &v.Batch, &v.Scores, &v.Fingerprint, inJSON{&v.Metrics}, at(&v.Created), at(&v.Collected), at(&v.Begun), inJSON{&v.Work})
	return v, err
}

const (
	upsertUpdates = `INSERT INTO progress (run, policy, number, basis, updates, manifest) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (run, policy, number) DO UPDATE SET basis = excluded.basis, updates = excluded.updates, manifest = excluded.manifest
WHERE progress.basis <> excluded.basis OR progress.updates < excluded.updates`
	selectUpdates    = `SELECT run, policy, number, basis, updates, manifest FROM progress WHERE run = $1 AND policy = $2 AND number = $3`
	deleteUpdates    = `DELETE FROM progress WHERE run = $1 AND policy = $2 AND number = $3`
	supersedeUpdates = `INSERT INTO superseded (manifest) SELECT manifest FROM progress
WHERE run = $1 AND policy = $2 AND number = $3 ON CONFLICT DO NOTHING`
	insertSuperseded = `INSERT INTO superseded (manifest) VALUES ($1) ON CONFLICT DO NOTHING`
)

// PutProgress replaces the progress towards a version by p, unless the stored one is
// further on the same basis, or the version exists. Progress that is replaced or not
// stored is superseded: see CollectSuperseded.
func (s *Store) PutProgress(ctx context.Context, p model.Progress) error {
	err := s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error {
		_, err := database.One(t.Ctx, t, readVersion, selectVersion, p.Run, p.Policy, p.Number)
		switch {
		case err == nil:
			_, err = t.Exec(insertSuperseded, p.Manifest)
			return err
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		old, err := database.One(t.Ctx, t, readProgress, selectUpdates, p.Run, p.Policy, p.Number)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		changed, err := t.Exec(upsertUpdates, p.Run, p.Policy, p.Number, p.Basis, p.Updates, p.Manifest)
		if err != nil {
			return err
		}
		gone, recorded := old.Manifest, p.Manifest
		if changed == 0 {
			gone, recorded = recorded, gone
		}
		if gone == "" || gone == recorded {
			return nil
		}
		_, err = t.Exec(insertSuperseded, gone)
		return err
	})
	if err != nil {
		return fmt.Errorf("put progress of version %s: %w", p.VersionID, err)
	}
	return nil
}

// Progress returns how far the updates towards a version have come. It returns
// trace.ErrNotFound if there is no progress on record or the version exists.
func (s *Store) Progress(ctx context.Context, id model.VersionID) (model.Progress, error) {
	p, err := database.One(ctx, s.db.Read(), readProgress, selectUpdates, id.Run, id.Policy, id.Number)
	if err != nil {
		return model.Progress{}, fmt.Errorf("read progress of version %s: %w", id, notFound(err))
	}
	return p, nil
}

func readProgress(row database.Scan) (p model.Progress, err error) {
	err = row(&p.Run, &p.Policy, &p.Number, &p.Basis, &p.Updates, &p.Manifest)
	return p, err
}
