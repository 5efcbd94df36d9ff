package store

import (
	"context"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

// Grader is the Source of rewards from a grader, including those after the seal. Its
// reward named "final" is the attempt's Reward, unless the seal had a reward.
const Grader = "grader"

var rewards = database.NewTable("rewards w", append(addressed(func(r *record.Reward) *record.Address { return &r.Address }),
	database.Col("name", func(r *record.Reward) any { return &r.Name }),
	database.Col("value", func(r *record.Reward) any { return &r.Value }),
	database.Col("call_id", func(r *record.Reward) any { return &r.CallID }),
	database.Col("source", func(r *record.Reward) any { return &r.Source }),
	database.Col("emitted", func(r *record.Reward) any { return (*database.Moment)(&r.Emitted) }),
)...)

var (
	insertReward  = rewards.Insert()
	selectRewards = rewards.From()
)

const replaceReward = `UPDATE rewards SET value = $9, emitted = $10
WHERE run = $1 AND kind = $2 AND step = $3 AND task = $4 AND sample = $5 AND attempt = $6 AND name = $7 AND call_id = $8`

const rewardsOf = ` WHERE w.run = $1 AND w.kind = $2 AND w.step = $3 AND w.task = $4 AND w.sample = $5 AND w.attempt = $6`

// PutReward gives a reward to the current attempt, or to one of its calls. The first
// reward of a name for an attempt or a call stands: giving an equal one again changes
// nothing, and another one returns record.ErrConflict. Of rewards that have a time of
// emission the last stands. A replaced attempt returns record.ErrFenced, and so does a
// sealed one, except for a grader's reward.
func (s *Store) PutReward(ctx context.Context, r record.Reward) error {
	r.Name, r.CallID, r.Source = database.ValidText(r.Name), database.ValidText(r.CallID), database.ValidText(r.Source)
	if r.Name == "" {
		return fmt.Errorf("put reward of %s: it has no name", r.Address)
	}
	if err := checkFinite("value", r.Value); err != nil {
		return fmt.Errorf("put reward %s of %s: %w", r.Name, r.Address, err)
	}
	d := database.SurvivesKill
	if r.Source == Grader {
		d = database.SurvivesPowerLoss
	}
	graded := false
	err := s.db.Write(ctx, d, func(t database.Tx) (err error) {
		created, err := putReward(t, r)
		graded = created && r.Source == Grader && r.Name == "final" && r.CallID == ""
		return err
	})
	if err != nil {
		return fmt.Errorf("put reward %s of %s: %w", r.Name, r.Address, err)
	}
	if graded {
		s.metrics.Reward(string(r.Kind), r.Value)
	}
	return nil
}

// Rewards returns the rewards of an attempt by name and call. It is no error if there are none.
func (s *Store) Rewards(ctx context.Context, address record.Address) ([]record.Reward, error) {
	all, err := database.List(ctx, s.db.Read(), rewards.Read, selectRewards+rewardsOf+` ORDER BY w.name, w.call_id`, attemptKey(address)...)
	if err != nil {
		return nil, fmt.Errorf("read rewards of %s: %w", address, err)
	}
	return all, nil
}

func putReward(t database.Tx, r record.Reward) (created bool, err error) {
	if err := refuseLateReward(t, r.Address); err != nil {
		return false, err
	}
	st, err := lockAttempt(t, r.Address)
	if err != nil {
		return false, err
	}
	err = st.open(r.Address)
	if r.Source == Grader {
		err = st.current(r.Address)
	}
	if err != nil {
		return false, err
	}
	old, created, err := database.InsertOrFind(t, insertReward, rewards.Fields(&r), func() (record.Reward, error) {
		return database.One(t.Ctx, t, rewards.Read, selectRewards+rewardsOf+` AND w.name = $7 AND w.call_id = $8`, append(attemptKey(r.Address), r.Name, r.CallID)...)
	})
	switch {
	case err != nil:
		return false, err
	case !old.Emitted.IsZero() && !r.Emitted.IsZero() && old.Source == r.Source:
		if r.Emitted.After(old.Emitted) {
			_, err = t.Exec(replaceReward, append(attemptKey(r.Address), r.Name, r.CallID, r.Value, database.Nanos(r.Emitted))...)
		}
		return created, err
	case old.Value != r.Value || old.Source != r.Source:
		return false, fmt.Errorf("%w: it is %g by the %s already", record.ErrConflict, old.Value, old.Source)
	}
	return created, nil
}

// Attempts that still run, or that ended with a fault of the infrastructure, do not
// count, even if they are the latest: a worker that was thought dead may begin one long
// after the rollout has ended.
const selectScores = `SELECT a.task, a.sample, a.attempt, COALESCE(a.reward, g.value) FROM attempts a` + joinGrade + `
WHERE a.run = $1 AND a.kind = $2 AND a.step = $3 AND a.policy = $4 AND a.outcome IN ('completed', 'agent_failed')
AND COALESCE(a.reward, g.value) IS NOT NULL ORDER BY a.task, a.sample, a.attempt`

// Scores returns the rewards of a step by task and sample: for each sample the reward
// that its grader gave to the last sealed attempt. Samples without a reward are left out.
// It is no error if there are none.
func (s *Store) Scores(ctx context.Context, run, policy string, kind record.Kind, step int) ([]record.Score, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (r record.Score, err error) {
		err = row(&r.Task, &r.Sample, &r.Attempt, &r.Reward)
		return r, err
	}, selectScores, run, kind, step, policy)
	if err != nil {
		return nil, fmt.Errorf("read scores of %s/%s-%d: %w", run, kind, step, err)
	}
	out := all[:0]
	for _, r := range all {
		if n := len(out); n > 0 && out[n-1].Task == r.Task && out[n-1].Sample == r.Sample {
			out[n-1] = r
		} else {
			out = append(out, r)
		}
	}
	return out, nil
}

const (
	insertGradingFailure = `INSERT INTO grading_failures (run, kind, step, task, sample, attempt, try, error, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	countGradingFailures = `SELECT COUNT(*) FROM grading_failures
WHERE run = $1 AND kind = $2 AND step = $3 AND task = $4 AND sample = $5 AND attempt = $6`
)

// PutGradingFailure records that the grader of an attempt gave no reward, and returns how
// often this has happened by now. The reason is cut to 64 KiB. If the attempt does not
// exist, it returns record.ErrNotFound; if what it left was removed, record.ErrForgotten.
func (s *Store) PutGradingFailure(ctx context.Context, address record.Address, reason string) (int, error) {
	failures := 0
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if err := refuseLate(t, address); err != nil {
			return err
		}
		if _, err := lockAttempt(t, address); err != nil {
			return err // two failures at once are counted one after the other
		}
		key := attemptKey(address)
		before, err := database.One(t.Ctx, t, database.Scalar[int], countGradingFailures, key...)
		if err != nil {
			return err
		}
		failures = before + 1
		_, err = t.Exec(insertGradingFailure, append(key, failures, truncate(database.ValidText(reason), errorLimit), database.Nanos(time.Now()))...)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("put grading failure of %s: %w", address, err)
	}
	return failures, nil
}

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
		if err := refuseRemoved(t, j.Run); err != nil {
			return err
		}
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

// Judgment returns the judgment under a key, or record.ErrNotFound.
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
		if err := refuseRemoved(t, n.Run); err != nil {
			return err
		}
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
