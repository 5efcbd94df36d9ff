package store

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	insertQuarantine = `INSERT INTO quarantines (run, policy, step, kind, task, place, reason, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING`
	// Quarantines of steps that have a batch are kept.
	undecided          = ` AND NOT EXISTS (SELECT 1 FROM batches b WHERE b.run = q.run AND b.policy = q.policy AND b.step = q.step)`
	uncountQuarantined = `UPDATE attempts SET outcome = 'infra_fault', error = 'made again: its task was quarantined, and the run retried' WHERE run = $1
AND outcome IN ('completed', 'agent_failed') AND EXISTS (SELECT 1 FROM quarantines q WHERE q.run = attempts.run AND q.policy = attempts.policy
AND q.step = attempts.step AND q.kind = attempts.kind AND q.task = attempts.task` + undecided + `)`
	deleteQuarantines = `DELETE FROM quarantines AS q WHERE q.run = $1` + undecided
	selectQuarantines = `SELECT run, policy, step, kind, task, place, reason, at FROM quarantines WHERE run = $1 AND policy = $2`
)

// PutQuarantine records that a step could not train on a task. Recording it again changes
// nothing; other values, except for At, return trace.ErrConflict. If At is zero, it is
// set to the current time.
func (s *Store) PutQuarantine(ctx context.Context, q record.Quarantine) error {
	args := []any{q.Run, q.Policy, q.Step, q.Kind, q.Task, q.Index, q.Reason, database.Nanos(orNow(q.At))}
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		old, _, err := database.InsertOrFind(t, insertQuarantine, args, func() (record.Quarantine, error) {
			return database.One(t.Ctx, t, readQuarantine, selectQuarantines+` AND step = $3 AND kind = $4 AND task = $5`, q.Run, q.Policy, q.Step, q.Kind, q.Task)
		})
		if err == nil && (old.Index != q.Index || old.Reason != database.ValidText(q.Reason)) {
			err = fmt.Errorf("%w: it is on record with other values", trace.ErrConflict)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("put quarantine of %s/%s-%d/%d: %w", q.Run, q.Kind, q.Step, q.Task, err)
	}
	return nil
}

// ForgetQuarantines removes a run's quarantines of tasks in steps that have no batch yet:
// the tasks are attempted again, and their attempts so far do not count.
func (s *Store) ForgetQuarantines(ctx context.Context, run string) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if _, err := t.Exec(uncountQuarantined, run); err != nil {
			return err
		}
		_, err := t.Exec(deleteQuarantines, run)
		return err
	})
	if err != nil {
		return fmt.Errorf("forget quarantines of %s: %w", run, err)
	}
	return nil
}

// Quarantines returns the quarantined tasks of a policy by step, those of the training
// stream before those of the reserve. It is no error if there are none.
func (s *Store) Quarantines(ctx context.Context, run, policy string) ([]record.Quarantine, error) {
	all, err := database.List(ctx, s.db.Read(), readQuarantine, selectQuarantines+` ORDER BY step, kind DESC, task`, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list quarantines of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

// LatestQuarantines returns the quarantined tasks of a policy's last steps, at most most
// of them, those of the latest steps first. It is no error if there are none.
func (s *Store) LatestQuarantines(ctx context.Context, run, policy string, most int) ([]record.Quarantine, error) {
	all, err := database.List(ctx, s.db.Read(), readQuarantine, selectQuarantines+` ORDER BY step DESC, kind, task DESC LIMIT $3`, run, policy, most)
	if err != nil {
		return nil, fmt.Errorf("list the latest quarantines of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

// QuarantinesOfStep returns the quarantined tasks of a step, those of the training stream
// before those of the reserve. It is no error if there are none.
func (s *Store) QuarantinesOfStep(ctx context.Context, run, policy string, step int) ([]record.Quarantine, error) {
	all, err := database.List(ctx, s.db.Read(), readQuarantine, selectQuarantines+` AND step = $3 ORDER BY kind DESC, task`, run, policy, step)
	if err != nil {
		return nil, fmt.Errorf("list quarantines of step %d of %s/%s: %w", step, run, policy, err)
	}
	return all, nil
}

func readQuarantine(row database.Scan) (q record.Quarantine, err error) {
	err = row(&q.Run, &q.Policy, &q.Step, &q.Kind, &q.Task, &q.Index, &q.Reason, at(&q.At))
	return q, err
}
