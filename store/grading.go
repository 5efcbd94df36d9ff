package store

import (
	"context"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	insertGradingFailure = `INSERT INTO grading_failures (run, kind, step, task, sample, attempt, try, error, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	countGradingFailures = `SELECT COUNT(*) FROM grading_failures
WHERE run = $1 AND kind = $2 AND step = $3 AND task = $4 AND sample = $5 AND attempt = $6`
)

// PutGradingFailure puts on record that the grader of an attempt gave no reward, and
// returns how often it did so by now. The reason is cut to 64 KiB. An attempt that is
// not there is trace.ErrNotFound.
func (s *Store) PutGradingFailure(ctx context.Context, address trace.Address, reason string) (int, error) {
	failures := 0
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if _, err := hold(t, address); err != nil {
			return err // two failures at once are counted one after the other
		}
		key := attemptKey(address)
		before, err := database.One(t.Ctx, t, database.Scalar[int], countGradingFailures, key...)
		if err != nil {
			return err
		}
		failures = before + 1
		_, err = t.Exec(insertGradingFailure, append(key, failures, cut(database.ValidText(reason), resultLimit), database.Nanos(time.Now()))...)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("put grading failure of %s: %w", address, err)
	}
	return failures, nil
}
