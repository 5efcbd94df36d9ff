package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
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
// ErrFileGone if the version lacks a file, and record.ErrForgotten for a forgotten run. If
// Created is zero, it is set to the current time.
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
		if err := refuseRemoved(t, v.Run); err != nil {
			return err
		}
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

// Version returns the version of that id, or record.ErrNotFound.
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

// LastVersion returns the newest version of a policy, or record.ErrNotFound.
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
// stored is superseded: see CollectSuperseded. A forgotten run is record.ErrForgotten.
func (s *Store) PutProgress(ctx context.Context, p model.Progress) error {
	err := s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error {
		if err := refuseRemoved(t, p.Run); err != nil {
			return err
		}
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
// record.ErrNotFound if there is no progress on record or the version exists.
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

const (
	makePointer   = `INSERT INTO promoted (run, policy, version, seq) VALUES ($1, $2, -1, 0) ON CONFLICT DO NOTHING`
	selectPointer = `SELECT version, seq FROM promoted WHERE run = $1 AND policy = $2`
	movePointer   = `UPDATE promoted SET version = $3, seq = $4 WHERE run = $1 AND policy = $2`

	insertPromotion = `INSERT INTO promotions (run, policy, decision_id, seq, version, previous, source, person, reason, evidence, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`
	selectPromotions = `SELECT run, policy, decision_id, version, previous, source, person, reason, evidence, at FROM promotions WHERE run = $1 AND policy = $2`
	promotionBy      = selectPromotions + ` AND decision_id = $3`
	lastPromotion    = selectPromotions + ` ORDER BY seq DESC LIMIT 1`
)

// Promote moves a policy's promoted pointer from p.Previous (-1 if there was none) to
// p.Version. A decision moves it once; repeating it changes nothing. It returns
// record.ErrConflict for another move under the same id, for an id that PutDecision has
// recorded, for a pointer that is not at Previous, and for an unpin of a pointer that is
// not pinned. For a pinned pointer it returns record.ErrPinned, except for pins and
// unpins. If At is zero, it is set to the current time.
func (s *Store) Promote(ctx context.Context, p record.Promotion) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error { return promote(t, p) })
	if err != nil {
		return fmt.Errorf("promote version %d of %s/%s by decision %s: %w", p.Version, p.Run, p.Policy, p.DecisionID, err)
	}
	return nil
}

// Promoted returns the last promotion of a policy, or record.ErrNotFound. Its Version is
// the promoted version.
func (s *Store) Promoted(ctx context.Context, run, policy string) (record.Promotion, error) {
	p, err := database.One(ctx, s.db.Read(), readPromotion, lastPromotion, run, policy)
	if err != nil {
		return record.Promotion{}, fmt.Errorf("read promoted version of %s/%s: %w", run, policy, notFound(err))
	}
	return p, nil
}

// Promotion returns the move of a policy's pointer by the decision of that id, or
// record.ErrNotFound.
func (s *Store) Promotion(ctx context.Context, run, policy, id string) (record.Promotion, error) {
	p, err := database.One(ctx, s.db.Read(), readPromotion, promotionBy, run, policy, id)
	if err != nil {
		return record.Promotion{}, fmt.Errorf("read promotion %s of %s/%s: %w", id, run, policy, notFound(err))
	}
	return p, nil
}

// Promotions returns all promotions of a policy in order. It is no error if there are
// none.
func (s *Store) Promotions(ctx context.Context, run, policy string) ([]record.Promotion, error) {
	all, err := database.List(ctx, s.db.Read(), readPromotion, selectPromotions+` ORDER BY seq`, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list promotions of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

// LatestPromotions returns the last moves of a policy's pointer, at most most of them,
// the latest first. It is no error if there are none.
func (s *Store) LatestPromotions(ctx context.Context, run, policy string, most int) ([]record.Promotion, error) {
	all, err := database.List(ctx, s.db.Read(), readPromotion, selectPromotions+` ORDER BY seq DESC LIMIT $3`, run, policy, most)
	if err != nil {
		return nil, fmt.Errorf("list the latest promotions of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

// PromotionsBetween returns the moves of a policy's pointer to versions with numbers from
// (inclusive) to to (exclusive), in order. It is no error if there are none.
func (s *Store) PromotionsBetween(ctx context.Context, run, policy string, from, to int) ([]record.Promotion, error) {
	all, err := database.List(ctx, s.db.Read(), readPromotion, selectPromotions+` AND version >= $3 AND version < $4 ORDER BY seq`, run, policy, from, to)
	if err != nil {
		return nil, fmt.Errorf("list promotions of versions %d to %d of %s/%s: %w", from, to, run, policy, err)
	}
	return all, nil
}

func promote(t database.Tx, p record.Promotion) error {
	p.Source = cmp.Or(p.Source, record.SourceGate)
	if err := refuseRemoved(t, p.Run); err != nil {
		return err
	}
	version, seq, err := lockPointer(t, p.Run, p.Policy)
	if err != nil {
		return err
	}
	old, err := database.One(t.Ctx, t, readPromotion, promotionBy, p.Run, p.Policy, p.DecisionID)
	switch {
	case err == nil && old.Version == p.Version && old.Previous == p.Previous && old.Source == p.Source:
		return nil
	case err == nil:
		return fmt.Errorf("%w: the decision moved version %d to %d", record.ErrConflict, old.Previous, old.Version)
	case !errors.Is(err, sql.ErrNoRows):
		return err
	}
	if err := movable(t, p, version); err != nil {
		return err
	}
	target, err := database.One(t.Ctx, t, readVersion, selectVersion, p.Run, p.Policy, p.Version)
	if err == nil && !target.Collected.IsZero() {
		return fmt.Errorf("%w: %w on %s", record.ErrConflict, model.ErrCollected, readable.Time(target.Collected))
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if _, err := t.Exec(movePointer, p.Run, p.Policy, p.Version, seq+1); err != nil {
		return err
	}
	_, err = t.Exec(insertPromotion, p.Run, p.Policy, p.DecisionID, seq+1, p.Version, p.Previous, p.Source, p.By, p.Reason, string(p.Evidence), database.Nanos(orNow(p.At)))
	return err
}

// lockPointer makes all other decisions about a policy wait. It returns the version that
// the policy's pointer is at, and how often the pointer moved.
func lockPointer(t database.Tx, run, policy string) (version, seq int, err error) {
	if _, err := t.Exec(makePointer, run, policy); err != nil {
		return 0, 0, err
	}
	pointer, err := database.One(t.Ctx, t, func(row database.Scan) (v [2]int, err error) {
		err = row(&v[0], &v[1])
		return v, err
	}, selectPointer+t.ForUpdate, run, policy)
	return pointer[0], pointer[1], err
}

// movable returns an error if p may not move the pointer, which is at version.
func movable(t database.Tx, p record.Promotion, version int) error {
	refused, err := database.One(t.Ctx, t, readDecision, decisionBy, p.Run, p.Policy, p.DecisionID)
	switch {
	case err == nil:
		return fmt.Errorf("%w: the decision is on record as %s", record.ErrConflict, refused.Verdict)
	case !errors.Is(err, sql.ErrNoRows):
		return err
	}
	last, err := database.One(t.Ctx, t, readPromotion, lastPromotion, p.Run, p.Policy)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	byHand := p.Source == record.SourcePin || p.Source == record.SourceUnpin
	switch {
	case last.Pinned() && !byHand:
		return fmt.Errorf("%w: at version %d by %s since %s", record.ErrPinned, last.Version, last.By, readable.Time(last.At))
	case version != p.Previous:
		return fmt.Errorf("%w: version %d is promoted, not %d", record.ErrConflict, version, p.Previous)
	case p.Source == record.SourceUnpin && (!last.Pinned() || p.Version != p.Previous):
		return fmt.Errorf("%w: version %d is not pinned", record.ErrConflict, p.Version)
	}
	return nil
}

func readPromotion(row database.Scan) (record.Promotion, error) {
	var p record.Promotion
	var evidence string
	err := row(&p.Run, &p.Policy, &p.DecisionID, &p.Version, &p.Previous, &p.Source, &p.By, &p.Reason, &evidence, at(&p.At))
	p.Evidence = raw(evidence)
	return p, err
}

const (
	insertDecision = `INSERT INTO decisions (run, policy, decision_id, candidate, promoted, verdict, reason, evidence, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING`
	selectDecisions = `SELECT run, policy, decision_id, candidate, promoted, verdict, reason, evidence, at FROM decisions WHERE run = $1 AND policy = $2`
	decisionBy      = selectDecisions + ` AND decision_id = $3`
)

// PutDecision records a decision that did not move the pointer. Recording it again
// changes nothing. Another candidate or verdict under its id returns record.ErrConflict,
// and so does an id by which the pointer moved. If At is zero, it is set to the current
// time.
func (s *Store) PutDecision(ctx context.Context, d record.Decision) error {
	args := []any{d.Run, d.Policy, d.DecisionID, d.Candidate, d.Promoted, d.Verdict, d.Reason, string(d.Evidence), database.Nanos(orNow(d.At))}
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if err := refuseRemoved(t, d.Run); err != nil {
			return err
		}
		if _, _, err := lockPointer(t, d.Run, d.Policy); err != nil {
			return err
		}
		moved, err := database.One(t.Ctx, t, readPromotion, promotionBy, d.Run, d.Policy, d.DecisionID)
		if err == nil {
			return fmt.Errorf("%w: the decision moved version %d to %d", record.ErrConflict, moved.Previous, moved.Version)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		old, _, err := database.InsertOrFind(t, insertDecision, args, func() (record.Decision, error) {
			return database.One(t.Ctx, t, readDecision, decisionBy, d.Run, d.Policy, d.DecisionID)
		})
		if err == nil && (old.Candidate != d.Candidate || old.Verdict != database.ValidText(d.Verdict)) {
			err = fmt.Errorf("%w: version %d is on record as %s", record.ErrConflict, old.Candidate, old.Verdict)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("put decision %s of %s/%s: %w", d.DecisionID, d.Run, d.Policy, err)
	}
	return nil
}

// Decision returns the decision with that id that did not move the pointer, or
// record.ErrNotFound.
func (s *Store) Decision(ctx context.Context, run, policy, id string) (record.Decision, error) {
	d, err := database.One(ctx, s.db.Read(), readDecision, decisionBy, run, policy, id)
	if err != nil {
		return record.Decision{}, fmt.Errorf("read decision %s of %s/%s: %w", id, run, policy, notFound(err))
	}
	return d, nil
}

// Decisions returns the decisions about a policy that did not move the pointer, in order.
// It is no error if there are none.
func (s *Store) Decisions(ctx context.Context, run, policy string) ([]record.Decision, error) {
	all, err := database.List(ctx, s.db.Read(), readDecision, selectDecisions+` ORDER BY at, candidate`, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list decisions of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

// LatestDecisions returns the last decisions about a policy that did not move the
// pointer, at most most of them, the latest first. It is no error if there are none.
func (s *Store) LatestDecisions(ctx context.Context, run, policy string, most int) ([]record.Decision, error) {
	all, err := database.List(ctx, s.db.Read(), readDecision, selectDecisions+` ORDER BY at DESC, candidate DESC LIMIT $3`, run, policy, most)
	if err != nil {
		return nil, fmt.Errorf("list the latest decisions of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

// DecisionsBetween returns the decisions that did not move the pointer, about candidates
// with numbers from (inclusive) to to (exclusive), in order. It is no error if there are
// none.
func (s *Store) DecisionsBetween(ctx context.Context, run, policy string, from, to int) ([]record.Decision, error) {
	all, err := database.List(ctx, s.db.Read(), readDecision, selectDecisions+` AND candidate >= $3 AND candidate < $4 ORDER BY at, candidate`, run, policy, from, to)
	if err != nil {
		return nil, fmt.Errorf("list decisions of versions %d to %d of %s/%s: %w", from, to, run, policy, err)
	}
	return all, nil
}

func readDecision(row database.Scan) (record.Decision, error) {
	var d record.Decision
	var evidence string
	err := row(&d.Run, &d.Policy, &d.DecisionID, &d.Candidate, &d.Promoted, &d.Verdict, &d.Reason, &evidence, at(&d.At))
	d.Evidence = raw(evidence)
	return d, err
}
