package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	insertDecision = `INSERT INTO decisions (run, policy, decision_id, candidate, promoted, verdict, reason, evidence, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING`
	selectDecisions = `SELECT run, policy, decision_id, candidate, promoted, verdict, reason, evidence, at FROM decisions WHERE run = $1 AND policy = $2`
	decisionBy      = selectDecisions + ` AND decision_id = $3`
)

// PutDecision puts a decision that moved nothing on record. Putting it again
// changes nothing; another candidate or verdict under its id is
// trace.ErrConflict, and so is an id by which the pointer moved. An absent At is
// the present.
func (s *Store) PutDecision(ctx context.Context, d record.Decision) error {
	args := []any{d.Run, d.Policy, d.DecisionID, d.Candidate, d.Promoted, d.Verdict, d.Reason, string(d.Evidence), database.Nanos(orNow(d.At))}
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if _, _, err := holdPointer(t, d.Run, d.Policy); err != nil {
			return err
		}
		moved, err := database.One(t.Ctx, t, readPromotion, promotionBy, d.Run, d.Policy, d.DecisionID)
		if err == nil {
			return fmt.Errorf("%w: the decision moved version %d to %d", trace.ErrConflict, moved.Previous, moved.Version)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		old, _, err := database.InsertOrFind(t, insertDecision, args, func() (record.Decision, error) {
			return database.One(t.Ctx, t, readDecision, decisionBy, d.Run, d.Policy, d.DecisionID)
		})
		if err == nil && (old.Candidate != d.Candidate || old.Verdict != database.ValidText(d.Verdict)) {
			err = fmt.Errorf("%w: version %d is on record as %s", trace.ErrConflict, old.Candidate, old.Verdict)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("put decision %s of %s/%s: %w", d.DecisionID, d.Run, d.Policy, err)
	}
	return nil
}

// Decision returns the decision of that id that moved nothing, or
// trace.ErrNotFound.
func (s *Store) Decision(ctx context.Context, run, policy, id string) (record.Decision, error) {
	d, err := database.One(ctx, s.db.Read(), readDecision, decisionBy, run, policy, id)
	if err != nil {
		return record.Decision{}, fmt.Errorf("read decision %s of %s/%s: %w", id, run, policy, known(err))
	}
	return d, nil
}

// Decisions returns the decisions about a policy that moved nothing, in order;
// none is no error.
func (s *Store) Decisions(ctx context.Context, run, policy string) ([]record.Decision, error) {
	all, err := database.List(ctx, s.db.Read(), readDecision, selectDecisions+` ORDER BY at, candidate`, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list decisions of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

func readDecision(row database.Scan) (record.Decision, error) {
	var d record.Decision
	var evidence string
	var at int64
	err := row(&d.Run, &d.Policy, &d.DecisionID, &d.Candidate, &d.Promoted, &d.Verdict, &d.Reason, &evidence, &at)
	d.Evidence, d.At = raw(evidence), database.FromNanos(at)
	return d, err
}
