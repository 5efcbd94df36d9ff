package store

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

const (
	insertJudgment = `INSERT INTO judgments (key, model, scores, run, policy, step, at) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`
	selectJudgment = `SELECT key, model, scores, run, policy, step, at FROM judgments WHERE key = $1`
	countJudgments = `SELECT COUNT(*) FROM judgments WHERE run = $1 AND policy = $2 AND step = $3`
	insertNonsense = `INSERT INTO nonsense (run, policy, step, judgment, try, answer, reason, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING`
	selectNonsense = `SELECT run, policy, step, judgment, try, answer, reason, at FROM nonsense
WHERE run = $1 AND policy = $2 AND step = $3 ORDER BY judgment, try`
)

// PutJudgment stores j unless its key has a judgment. It returns the judgment on record
// and whether this call stored it. If At is zero, it is set to the current time.
func (s *Store) PutJudgment(ctx context.Context, j record.Judgment) (record.Judgment, bool, error) {
	scores, err := encode("scores", j.Scores)
	if err != nil {
		return record.Judgment{}, false, fmt.Errorf("put judgment %s: %w", j.Key, err)
	}
	args := []any{j.Key, j.Model, scores, j.Run, j.Policy, j.Step, database.Nanos(orNow(j.At))}
	var stored record.Judgment
	var created bool
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) (err error) {
		stored, created, err = database.InsertOrFind(t, insertJudgment, args, func() (record.Judgment, error) {
			return database.One(t.Ctx, t, readJudgment, selectJudgment, j.Key)
		})
		return err
	})
	if err != nil {
		return record.Judgment{}, false, fmt.Errorf("put judgment %s: %w", j.Key, err)
	}
	return stored, created, nil
}

// Judgment returns the judgment under a key, or trace.ErrNotFound.
func (s *Store) Judgment(ctx context.Context, key string) (record.Judgment, error) {
	j, err := database.One(ctx, s.db.Read(), readJudgment, selectJudgment, key)
	if err != nil {
		return record.Judgment{}, fmt.Errorf("read judgment %s: %w", key, notFound(err))
	}
	return j, nil
}

// Judged counts the judgments that were made for a step. It does not count judgments that
// the step found on record.
func (s *Store) Judged(ctx context.Context, run, policy string, step int) (int, error) {
	n, err := database.One(ctx, s.db.Read(), database.Scalar[int], countJudgments, run, policy, step)
	if err != nil {
		return 0, fmt.Errorf("count judgments of %s/%s step %d: %w", run, policy, step, err)
	}
	return n, nil
}

// PutNonsense stores a judge's answer that could not be parsed, unless there is one with
// its number. If At is zero, it is set to the current time.
func (s *Store) PutNonsense(ctx context.Context, n record.Nonsense) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		_, err := t.Exec(insertNonsense, n.Run, n.Policy, n.Step, n.Judgment, n.Try, n.Answer, n.Reason, database.Nanos(orNow(n.At)))
		return err
	})
	if err != nil {
		return fmt.Errorf("put nonsense about judgment %s: %w", n.Judgment, err)
	}
	return nil
}

// Nonsense returns the answers of a step's judge that could not be parsed, ordered by
// judgment and number. It is no error if there are none.
func (s *Store) Nonsense(ctx context.Context, run, policy string, step int) ([]record.Nonsense, error) {
	all, err := database.List(ctx, s.db.Read(), readNonsense, selectNonsense, run, policy, step)
	if err != nil {
		return nil, fmt.Errorf("list nonsense of %s/%s step %d: %w", run, policy, step, err)
	}
	return all, nil
}

func readNonsense(row database.Scan) (n record.Nonsense, err error) {
	err = row(&n.Run, &n.Policy, &n.Step, &n.Judgment, &n.Try, &n.Answer, &n.Reason, at(&n.At))
	return n, err
}

func readJudgment(row database.Scan) (j record.Judgment, err error) {
	err = row(&j.Key, &j.Model, inJSON{&j.Scores}, &j.Run, &j.Policy, &j.Step, at(&j.At))
	return j, err
}
