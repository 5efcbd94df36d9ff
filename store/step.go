package store

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	insertStep  = `INSERT INTO steps (run, policy, step, batch, metrics, at) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`
	selectSteps = `SELECT run, policy, step, batch, metrics, at FROM steps WHERE run = $1 AND policy = $2`
)

// PutStep puts a finished step on record. Putting it again changes nothing,
// other values (At aside) are trace.ErrConflict. An absent At is the present.
func (s *Store) PutStep(ctx context.Context, r record.Step) error {
	metrics, err := encode("metrics", r.Metrics)
	if err != nil {
		return fmt.Errorf("put step %d of %s/%s: %w", r.Step, r.Run, r.Policy, err)
	}
	args := []any{r.Run, r.Policy, r.Step, r.Batch, metrics, database.Nanos(orNow(r.At))}
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		old, _, err := database.InsertOrFind(t, insertStep, args, func() ([2]string, error) {
			return database.One(t.Ctx, t, func(row database.Scan) (v [2]string, err error) {
				err = row(&v[0], &v[1])
				return v, err
			}, `SELECT batch, metrics FROM steps WHERE run = $1 AND policy = $2 AND step = $3`, r.Run, r.Policy, r.Step)
		})
		if err == nil && old != [2]string{database.ValidText(r.Batch), database.ValidText(metrics)} {
			err = fmt.Errorf("%w: it is on record with other values", trace.ErrConflict)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("put step %d of %s/%s: %w", r.Step, r.Run, r.Policy, err)
	}
	return nil
}

// Steps returns the finished steps of a policy in order; none is no error.
func (s *Store) Steps(ctx context.Context, run, policy string) ([]record.Step, error) {
	all, err := database.List(ctx, s.db.Read(), readStep, selectSteps+` ORDER BY step`, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list steps of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

// StepsAfter returns the finished steps of a policy with numbers above one, in order, so
// that who has read the first ones reads only what is new.
func (s *Store) StepsAfter(ctx context.Context, run, policy string, after int) ([]record.Step, error) {
	all, err := database.List(ctx, s.db.Read(), readStep, selectSteps+` AND step > $3 ORDER BY step`, run, policy, after)
	if err != nil {
		return nil, fmt.Errorf("list steps of %s/%s after %d: %w", run, policy, after, err)
	}
	return all, nil
}

// LastStep returns the newest finished step of a policy, or trace.ErrNotFound.
func (s *Store) LastStep(ctx context.Context, run, policy string) (record.Step, error) {
	r, err := database.One(ctx, s.db.Read(), readStep, selectSteps+` ORDER BY step DESC LIMIT 1`, run, policy)
	if err != nil {
		return record.Step{}, fmt.Errorf("read the last step of %s/%s: %w", run, policy, notFound(err))
	}
	return r, nil
}

func readStep(row database.Scan) (r record.Step, err error) {
	err = row(&r.Run, &r.Policy, &r.Step, &r.Batch, inJSON{&r.Metrics}, at(&r.At))
	return r, err
}

const selectLags = `SELECT a.step, AVG(a.step - 1 - a.version) FROM attempts a WHERE a.run = $1 AND a.kind = 'train' AND a.step > $2 AND a.policy = $3
GROUP BY a.step ORDER BY a.step`

// Lags returns for each training step above one how many steps the versions that sampled
// it were behind the one that was trained, on average over its attempts.
func (s *Store) Lags(ctx context.Context, run, policy string, after int) (map[int]float64, error) {
	lags := map[int]float64{}
	_, err := database.List(ctx, s.db.Read(), func(row database.Scan) (none struct{}, err error) {
		var step int
		var lag float64
		err = row(&step, &lag)
		lags[step] = lag
		return none, err
	}, selectLags, run, after, policy)
	if err != nil {
		return nil, fmt.Errorf("read lags of %s/%s after %d: %w", run, policy, after, err)
	}
	return lags, nil
}
