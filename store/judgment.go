package store

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/record"
)

const (
	insertJudgment = `INSERT INTO judgments (key, model, scores, run, policy, step, at) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`
	selectJudgment = `SELECT key, model, scores, run, policy, step, at FROM judgments WHERE key = $1`
	countJudgments = `SELECT COUNT(*) FROM judgments WHERE run = $1 AND policy = $2 AND step = $3`
	insertNonsense = `INSERT INTO nonsense (run, policy, step, judgment, try, answer, reason, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING`
	selectNonsense = `SELECT run, policy, step, judgment, try, answer, reason, at FROM nonsense
WHERE run = $1 AND policy = $2 AND step = $3 ORDER BY judgment, try`
)

// PutJudgment keeps j unless a judgment of the same stands, and returns the one that
// then stands and whether this call made it. An absent At is the present.
func (s *Store) PutJudgment(ctx context.Context, j record.Judgment) (record.Judgment, bool, error) {
	scores, err := encode("scores", j.Scores)
	if err != nil {
		return record.Judgment{}, false, fmt.Errorf("put judgment %s: %w", j.Key, err)
	}
	args := []any{j.Key, j.Model, scores, j.Run, j.Policy, j.Step, nanos(orNow(j.At))}
	var standing record.Judgment
	var created bool
	err = s.write(ctx, survivesPowerLoss, func(t tx) (err error) {
		standing, created, err = keep(t, insertJudgment, args, func() (record.Judgment, error) {
			return one(t.ctx, t, readJudgment, selectJudgment, j.Key)
		})
		return err
	})
	if err != nil {
		return record.Judgment{}, false, fmt.Errorf("put judgment %s: %w", j.Key, err)
	}
	return standing, created, nil
}

// Judgment returns the judgment under a key, or trace.ErrNotFound.
func (s *Store) Judgment(ctx context.Context, key string) (record.Judgment, error) {
	j, err := one(ctx, s.read(), readJudgment, selectJudgment, key)
	if err != nil {
		return record.Judgment{}, fmt.Errorf("read judgment %s: %w", key, known(err))
	}
	return j, nil
}

// Judged counts the judgments that a step had made. What it found made already does
// not count.
func (s *Store) Judged(ctx context.Context, run, policy string, step int) (int, error) {
	n, err := one(ctx, s.read(), scalar[int], countJudgments, run, policy, step)
	if err != nil {
		return 0, fmt.Errorf("count judgments of %s/%s step %d: %w", run, policy, step, err)
	}
	return n, nil
}

// PutNonsense keeps an answer that could not be read, unless one of that number
// stands. An absent At is the present.
func (s *Store) PutNonsense(ctx context.Context, n record.Nonsense) error {
	err := s.write(ctx, survivesPowerLoss, func(t tx) error {
		_, err := t.exec(insertNonsense, n.Run, n.Policy, n.Step, n.Judgment, n.Try, n.Answer, n.Reason, nanos(orNow(n.At)))
		return err
	})
	if err != nil {
		return fmt.Errorf("put nonsense about judgment %s: %w", n.Judgment, err)
	}
	return nil
}

// Nonsense returns the answers that a step got and that could not be read, by what
// they were about and by number; none is no error.
func (s *Store) Nonsense(ctx context.Context, run, policy string, step int) ([]record.Nonsense, error) {
	all, err := list(ctx, s.read(), readNonsense, selectNonsense, run, policy, step)
	if err != nil {
		return nil, fmt.Errorf("list nonsense of %s/%s step %d: %w", run, policy, step, err)
	}
	return all, nil
}

func readNonsense(row scan) (record.Nonsense, error) {
	var n record.Nonsense
	var at int64
	err := row(&n.Run, &n.Policy, &n.Step, &n.Judgment, &n.Try, &n.Answer, &n.Reason, &at)
	n.At = fromNanos(at)
	return n, err
}

func readJudgment(row scan) (record.Judgment, error) {
	var j record.Judgment
	var scores string
	var at int64
	if err := row(&j.Key, &j.Model, &scores, &j.Run, &j.Policy, &j.Step, &at); err != nil {
		return record.Judgment{}, err
	}
	j.At = fromNanos(at)
	return j, decode("scores", scores, &j.Scores)
}
