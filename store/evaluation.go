package store

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	insertEvaluation = `INSERT INTO evaluations (run, policy, kind, version, tasks, rollouts, mean, std_error, greedy, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING`
	selectEvaluations = `SELECT run, policy, kind, version, tasks, rollouts, mean, std_error, greedy, at FROM evaluations WHERE run = $1`
	// The kinds are listed because the key has the kind before the version.
	evaluationsBetween = selectEvaluations + ` AND policy = $2 AND kind IN ('train', 'gate', 'test') AND version >= $3 AND version < $4 ORDER BY version, kind`
)

// PutEvaluation records the evaluation of a version on a split. Recording it again
// changes nothing; other values, except for At, return trace.ErrConflict. If At is zero,
// it is set to the current time.
func (s *Store) PutEvaluation(ctx context.Context, e record.Evaluation) error {
	err := checkEvaluation(e)
	if err == nil {
		e.At = orNow(e.At)
		err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error { return putEvaluation(t, e) })
	}
	if err != nil {
		return fmt.Errorf("put evaluation of %s/%s version %d on %s: %w", e.Run, e.Policy, e.Version, e.Kind, err)
	}
	return nil
}

// Evaluations returns the evaluations of a run by policy, version and kind. It is no
// error if there are none.
func (s *Store) Evaluations(ctx context.Context, run string) ([]record.Evaluation, error) {
	all, err := database.List(ctx, s.db.Read(), readEvaluation, selectEvaluations+` ORDER BY policy, version, kind`, run)
	if err != nil {
		return nil, fmt.Errorf("list evaluations of %s: %w", run, err)
	}
	return all, nil
}

// EvaluationsBetween returns the evaluations of a policy's versions with numbers from
// (inclusive) to to (exclusive), by version and kind. It is no error if there are none.
func (s *Store) EvaluationsBetween(ctx context.Context, run, policy string, from, to int) ([]record.Evaluation, error) {
	all, err := database.List(ctx, s.db.Read(), readEvaluation, evaluationsBetween, run, policy, from, to)
	if err != nil {
		return nil, fmt.Errorf("list evaluations of versions %d to %d of %s/%s: %w", from, to, run, policy, err)
	}
	return all, nil
}

func putEvaluation(t database.Tx, e record.Evaluation) error {
	args := []any{e.Run, e.Policy, e.Kind, e.Version, e.Tasks, e.Rollouts, e.Mean, e.StdError, e.Greedy, database.Nanos(e.At)}
	old, _, err := database.InsertOrFind(t, insertEvaluation, args, func() (record.Evaluation, error) {
		return database.One(t.Ctx, t, readEvaluation, selectEvaluations+` AND policy = $2 AND kind = $3 AND version = $4`, e.Run, e.Policy, e.Kind, e.Version)
	})
	if err != nil {
		return err
	}
	if old.Tasks != e.Tasks || old.Rollouts != e.Rollouts || old.Mean != e.Mean || old.StdError != e.StdError || !sameNumber(old.Greedy, e.Greedy) {
		return fmt.Errorf("%w: it is on record with other values", trace.ErrConflict)
	}
	return nil
}

func checkEvaluation(e record.Evaluation) error {
	if err := checkFinite("mean", e.Mean); err != nil {
		return err
	}
	if e.Greedy != nil {
		if err := checkFinite("greedy", *e.Greedy); err != nil {
			return err
		}
	}
	return checkFinite("std_error", e.StdError)
}

func readEvaluation(row database.Scan) (e record.Evaluation, err error) {
	err = row(&e.Run, &e.Policy, &e.Kind, &e.Version, &e.Tasks, &e.Rollouts, &e.Mean, &e.StdError, &e.Greedy, at(&e.At))
	return e, err
}

// sameNumber compares numbers that may be absent.
func sameNumber(a, b *float64) bool {
	return a == b || a != nil && b != nil && *a == *b
}
