package store

import (
	"context"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	insertStep  = `INSERT INTO steps (run, policy, step, batch, metrics, at) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`
	selectSteps = `SELECT run, policy, step, batch, metrics, at FROM steps WHERE run = $1 AND policy = $2`
)

// PutStep records a finished step. Recording it again changes nothing; other values,
// except for At, return trace.ErrConflict. If At is zero, it is set to the current time.
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

// Steps returns the finished steps of a policy in order. It is no error if there are
// none.
func (s *Store) Steps(ctx context.Context, run, policy string) ([]record.Step, error) {
	all, err := database.List(ctx, s.db.Read(), readStep, selectSteps+` ORDER BY step`, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list steps of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

// StepsAfter returns the finished steps of a policy with numbers above after, in order,
// so that a reader of the first steps reads only the new ones.
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

// Lags returns, for each training step above after, by how many steps the versions that
// sampled it were behind the version that was trained, averaged over the step's attempts.
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

const (
	insertChoice  = `INSERT INTO choices (run, policy, step, choice, at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`
	selectChoices = `SELECT choice, at FROM choices WHERE run = $1 AND policy = $2`
)

// PutChoice records which tasks a step attempts, unless a choice is on record already. It
// returns the choice on record. If At is zero, it is set to the current time.
func (s *Store) PutChoice(ctx context.Context, c record.Choice) (record.Choice, error) {
	c.At = orNow(c.At)
	text, err := encode("choice", c)
	if err != nil {
		return c, fmt.Errorf("put choice of %s/%s step %d: %w", c.Run, c.Policy, c.Step, err)
	}
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) (err error) {
		args := []any{c.Run, c.Policy, c.Step, text, database.Nanos(c.At)}
		c, _, err = database.InsertOrFind(t, insertChoice, args, func() (record.Choice, error) {
			return database.One(t.Ctx, t, readChoice, selectChoices+` AND step = $3`, c.Run, c.Policy, c.Step)
		})
		return err
	})
	if err != nil {
		return c, fmt.Errorf("put choice of %s/%s step %d: %w", c.Run, c.Policy, c.Step, err)
	}
	return c, nil
}

// Choice returns which tasks a step attempts. It returns trace.ErrNotFound if no
// curriculum chose them.
func (s *Store) Choice(ctx context.Context, run, policy string, step int) (record.Choice, error) {
	c, err := database.One(ctx, s.db.Read(), readChoice, selectChoices+` AND step = $3`, run, policy, step)
	if err != nil {
		return c, fmt.Errorf("read choice of %s/%s step %d: %w", run, policy, step, notFound(err))
	}
	return c, nil
}

// Choices returns which tasks the steps of a policy attempt, in order, for steps whose
// tasks a curriculum chose. It is no error if there are none.
func (s *Store) Choices(ctx context.Context, run, policy string) ([]record.Choice, error) {
	all, err := database.List(ctx, s.db.Read(), readChoice, selectChoices+` ORDER BY step`, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list choices of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

func readChoice(row database.Scan) (c record.Choice, err error) {
	var when time.Time
	err = row(inJSON{&c}, at(&when))
	return c, err
}

const selectStepScores = `SELECT a.kind, a.step, a.task_id, a.task, a.sample, a.attempt, COALESCE(a.reward, g.value) FROM attempts a` + joinGrade + `
WHERE a.run = $1 AND a.policy = $2 AND a.kind = $3 AND a.step >= $4 AND a.step <= $5 AND a.outcome IN ('completed', 'agent_failed')
AND COALESCE(a.reward, g.value) IS NOT NULL ORDER BY a.step, a.task, a.sample, a.attempt`

// StepScores returns the rewards of the groups, of batch and reserve, that steps first to
// last attempted: for each sample the reward of the last sealed attempt, as in Scores.
func (s *Store) StepScores(ctx context.Context, run, policy string, first, last int) ([]record.StepScore, error) {
	var out []record.StepScore
	for _, kind := range []trace.Kind{trace.Train, trace.Reserve} {
		all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (r record.StepScore, err error) {
			err = row(&r.Kind, &r.Step, &r.TaskID, &r.Task, &r.Sample, &r.Attempt, &r.Reward)
			return r, err
		}, selectStepScores, run, policy, kind, first, last)
		if err != nil {
			return nil, fmt.Errorf("read scores of %s/%s, steps %d to %d: %w", run, policy, first, last, err)
		}
		for _, r := range all {
			if n := len(out); n > 0 && out[n-1].Kind == r.Kind && out[n-1].Step == r.Step && out[n-1].Task == r.Task && out[n-1].Sample == r.Sample {
				out[n-1] = r
			} else {
				out = append(out, r)
			}
		}
	}
	return out, nil
}
