package store

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	// refusalCodes is how many codes are kept for an attempt, in addition to
	// otherRefusals.
	refusalCodes = 32
	// otherRefusals is the code under which refusals with more codes are counted.
	otherRefusals = "other"
	// refusalText is how many bytes of a code's message are kept.
	refusalText = 2 << 10

	refusalsOf = ` WHERE f.run = $1 AND f.kind = $2 AND f.step = $3 AND f.task = $4 AND f.sample = $5 AND f.attempt = $6`
	// If it was uncertain whether a write was committed, it is repeated with the same
	// time.
	addRefusal = `INSERT INTO refusals (run, kind, step, task, sample, attempt, code, message, times, first_at, last_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (run, kind, step, task, sample, attempt, code) DO UPDATE
SET times = refusals.times + excluded.times, message = excluded.message, last_at = excluded.last_at WHERE refusals.last_at <> excluded.last_at`
	countOtherRefusals = `SELECT COUNT(*) FROM refusals f` + refusalsOf + ` AND f.code <> $7`
	selectRefusals     = `SELECT f.code, f.message, f.times, f.first_at, f.last_at FROM refusals f` + refusalsOf + ` ORDER BY f.first_at, f.code`

	countRefusals = `SELECT kind, step, task, sample, attempt, code, message, total, begun, last_at, attempts FROM (
SELECT f.kind, f.step, f.task, f.sample, f.attempt, f.code, f.message, f.last_at,
CAST(SUM(f.times) OVER (PARTITION BY f.code) AS BIGINT) AS total, MIN(f.first_at) OVER (PARTITION BY f.code) AS begun, COUNT(*) OVER (PARTITION BY f.code) AS attempts,
ROW_NUMBER() OVER (PARTITION BY f.code ORDER BY f.last_at DESC, f.kind, f.step, f.task, f.sample, f.attempt) AS place
FROM refusals f JOIN attempts a ON a.run = f.run AND a.kind = f.kind AND a.step = f.step AND a.task = f.task AND a.sample = f.sample AND a.attempt = f.attempt
WHERE f.run = $1 AND a.policy = $2) latest WHERE place = 1 ORDER BY total DESC, code`
)

// AddRefusal adds to the count of an attempt's refused calls with a code. A Count of zero
// means 1, a zero Last means the current time, and the store sets First itself. If the
// refusal that was added last is added once more, it is not counted again. The number of
// codes is limited: after the first 32 codes of an attempt, all others are counted as
// "other". Sealed and replaced attempts accept refusals as well; an attempt that never
// began returns trace.ErrNotFound.
func (s *Store) AddRefusal(ctx context.Context, r trace.Refusal) error {
	last := database.Nanos(orNow(r.Last))
	message := truncate(database.ValidText(r.Message), refusalText)
	err := s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error {
		if _, err := lockAttempt(t, r.Address); err != nil {
			return err
		}
		code := r.Code
		others, err := database.One(t.Ctx, t, database.Scalar[int], countOtherRefusals, append(attemptKey(r.Address), code)...)
		if err != nil {
			return err
		}
		if others >= refusalCodes {
			code = otherRefusals
		}
		_, err = t.Exec(addRefusal, append(attemptKey(r.Address), code, message, max(r.Count, 1), last, last)...)
		return err
	})
	if err != nil {
		return fmt.Errorf("add refusal %s of %s: %w", r.Code, r.Address, err)
	}
	return nil
}

// Refusals returns the refused calls of an attempt by code, in the order in which the
// codes first came. It is no error if there are none.
func (s *Store) Refusals(ctx context.Context, address trace.Address) ([]trace.Refusal, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (trace.Refusal, error) {
		r := trace.Refusal{Address: address}
		err := row(&r.Code, &r.Message, &r.Count, at(&r.First), at(&r.Last))
		return r, err
	}, selectRefusals, attemptKey(address)...)
	if err != nil {
		return nil, fmt.Errorf("read refusals of %s: %w", address, err)
	}
	return all, nil
}

// RefusalsOfRun returns the refused calls of all attempts of a policy by code, the most
// frequent first. It is no error if there are none.
func (s *Store) RefusalsOfRun(ctx context.Context, run, policy string) ([]trace.RefusalCount, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (trace.RefusalCount, error) {
		r := trace.RefusalCount{Refusal: trace.Refusal{Address: addressIn(run)}}
		err := row(&r.Kind, &r.Step, &r.Task, &r.Sample, &r.Attempt, &r.Code, &r.Message, &r.Count, at(&r.First), at(&r.Last), &r.Attempts)
		return r, err
	}, countRefusals, run, policy)
	if err != nil {
		return nil, fmt.Errorf("count refusals of %s/%s: %w", run, policy, err)
	}
	return all, nil
}
