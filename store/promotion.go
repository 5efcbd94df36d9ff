package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	makePointer   = `INSERT INTO promoted (run, policy, version, seq) VALUES ($1, $2, -1, 0) ON CONFLICT DO NOTHING`
	selectPointer = `SELECT version, seq FROM promoted WHERE run = $1 AND policy = $2`
	movePointer   = `UPDATE promoted SET version = $3, seq = $4 WHERE run = $1 AND policy = $2`

	insertPromotion = `INSERT INTO promotions (run, policy, decision_id, seq, version, previous, reason, evidence, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	selectPromotions = `SELECT run, policy, decision_id, version, previous, reason, evidence, at FROM promotions WHERE run = $1 AND policy = $2`
	selectDecision   = selectPromotions + ` AND decision_id = $3`
)

// Promote moves a policy's promoted pointer from p.Previous (-1: there was
// none) to p.Version. A decision moves it once: making it again changes
// nothing, another move under its id is trace.ErrConflict, and so is a pointer
// that does not stand at Previous. An absent At is the present.
func (s *Store) Promote(ctx context.Context, p record.Promotion) error {
	err := s.write(ctx, survivesPowerLoss, func(t tx) error { return promote(t, p) })
	if err != nil {
		return fmt.Errorf("promote version %d of %s/%s by decision %s: %w", p.Version, p.Run, p.Policy, p.DecisionID, err)
	}
	return nil
}

// Promoted returns the last promotion of a policy, whose Version is the
// promoted one, or trace.ErrNotFound.
func (s *Store) Promoted(ctx context.Context, run, policy string) (record.Promotion, error) {
	p, err := one(ctx, s.read(), readPromotion, selectPromotions+` ORDER BY seq DESC LIMIT 1`, run, policy)
	if err != nil {
		return record.Promotion{}, fmt.Errorf("read promoted version of %s/%s: %w", run, policy, known(err))
	}
	return p, nil
}

// Promotions returns all promotions of a policy in order; none is no error.
func (s *Store) Promotions(ctx context.Context, run, policy string) ([]record.Promotion, error) {
	all, err := list(ctx, s.read(), readPromotion, selectPromotions+` ORDER BY seq`, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list promotions of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

func promote(t tx, p record.Promotion) error {
	if _, err := t.exec(makePointer, p.Run, p.Policy); err != nil {
		return err
	}
	pointer, err := one(t.ctx, t, func(row scan) (v [2]int, err error) {
		err = row(&v[0], &v[1])
		return v, err
	}, selectPointer+t.forUpdate, p.Run, p.Policy)
	if err != nil {
		return err
	}
	version, seq := pointer[0], pointer[1]
	old, err := one(t.ctx, t, readPromotion, selectDecision, p.Run, p.Policy, p.DecisionID)
	switch {
	case err == nil && old.Version == p.Version && old.Previous == p.Previous:
		return nil
	case err == nil:
		return fmt.Errorf("%w: the decision moved version %d to %d", trace.ErrConflict, old.Previous, old.Version)
	case !errors.Is(err, sql.ErrNoRows):
		return err
	case version != p.Previous:
		return fmt.Errorf("%w: version %d is promoted, not %d", trace.ErrConflict, version, p.Previous)
	}
	if _, err := t.exec(movePointer, p.Run, p.Policy, p.Version, seq+1); err != nil {
		return err
	}
	_, err = t.exec(insertPromotion, p.Run, p.Policy, p.DecisionID, seq+1, p.Version, p.Previous, p.Reason, string(p.Evidence), nanos(orNow(p.At)))
	return err
}

func readPromotion(row scan) (record.Promotion, error) {
	var p record.Promotion
	var evidence string
	var at int64
	err := row(&p.Run, &p.Policy, &p.DecisionID, &p.Version, &p.Previous, &p.Reason, &evidence, &at)
	p.Evidence, p.At = raw(evidence), fromNanos(at)
	return p, err
}
