package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

// Trials are read once for a whole run, however many attempts it has.
const (
	trialColumns = `SELECT a.kind, a.step, a.task, a.sample, a.attempt, a.task_id, a.outcome, a.failure, COALESCE(a.reward, g.value),
a.calls, a.tokens, a.begun FROM attempts a` + joinGrade
	selectTrials        = trialColumns + ` WHERE a.run = $1 AND a.policy = $2 AND a.kind <> 'served' ORDER BY a.kind, a.step, a.task, a.sample, a.attempt`
	selectTrialsOfGroup = trialColumns + ` WHERE a.run = $1 AND a.kind = $2 AND a.step = $3 AND a.task = $4 ORDER BY a.sample, a.attempt`
	// The calls that were cut off are few beside the attempts, and an index holds them.
	selectTrialsCutOff = trialColumns + ` WHERE (a.run, a.kind, a.step, a.task, a.sample, a.attempt) IN (SELECT DISTINCT run, kind, step, task, sample, attempt
FROM calls WHERE run = $1 AND finish = 'length' ORDER BY run, kind, step, task, sample, attempt LIMIT $2) ORDER BY a.kind, a.step, a.task, a.sample, a.attempt`
	selectTrialsOfStep = trialColumns + ` WHERE a.run = $1 AND a.kind = $2 AND a.step = $3 ORDER BY a.task, a.sample, a.attempt`

	// Few attempts are cut off. So only their rows are looked up in the table that
	// replaces %s.
	fromInterrupted = ` FROM attempts a CROSS JOIN rollouts r CROSS JOIN %s x WHERE a.run = $1 AND a.policy = $2 AND a.outcome IN ('', 'infra_fault') AND a.kind <> 'served'
AND r.run = a.run AND r.kind = a.kind AND r.step = a.step AND r.task = a.task AND r.sample = a.sample AND r.attempt > a.attempt
AND x.run = a.run AND x.kind = a.kind AND x.step = a.step AND x.task = a.task AND x.sample = a.sample AND x.attempt = a.attempt
GROUP BY a.kind, a.step, a.task, a.sample, a.attempt`
	// An index holds the few calls that were cut off.
	selectCutOff = `SELECT kind, step, task, sample, attempt, COUNT(*) FROM calls WHERE run = $1 AND finish = 'length'`
	cutOffOfKind = ` AND kind = $2 AND step = $3`
	groupCutOff  = ` GROUP BY kind, step, task, sample, attempt`
	lastActivity = `SELECT a.kind, a.step, a.task, a.sample, a.attempt, MAX(%s)` + fromInterrupted
)

// Trials returns what became of every attempt of a run, by kind, step, task, sample and
// attempt. It is no error if there are none.
func (s *Store) Trials(ctx context.Context, run, policy string) ([]record.Trial, error) {
	all, err := database.List(ctx, s.db.Read(), readTrial(run), selectTrials, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list trials of %s/%s: %w", run, policy, err)
	}
	progress, err := s.progress(ctx, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list trials of %s/%s: %w", run, policy, err)
	}
	for i := range all {
		if at, ok := progress[all[i].Address]; ok {
			all[i].Progress = at
		}
	}
	if err := s.countCutOff(ctx, all, selectCutOff, run); err != nil {
		return nil, fmt.Errorf("list trials of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

const selectUsage = `SELECT COALESCE(SUM(calls), 0), COALESCE(SUM(tokens), 0), COALESCE(SUM(CASE WHEN outcome = 'agent_failed' THEN 1 ELSE 0 END), 0)
FROM attempts WHERE run = $1 AND policy = $2 AND kind <> 'served'`

// Usage counts the calls and tokens of a run's attempts, without conversations of users. It reads all attempts of the run.
func (s *Store) Usage(ctx context.Context, run, policy string) (record.Usage, error) {
	u, err := database.One(ctx, s.db.Read(), func(row database.Scan) (u record.Usage, err error) {
		err = row(&u.Calls, &u.Tokens, &u.AgentFailed)
		return u, err
	}, selectUsage, run, policy)
	if err != nil {
		return u, fmt.Errorf("count calls of %s/%s: %w", run, policy, err)
	}
	return u, nil
}

// A log-probability has four bytes, and each sampled token has one.
const selectPolicyUsage = `SELECT c.policy, COUNT(*), SUM(LENGTH(c.logprobs) / 4) FROM attempts a
JOIN rollouts r ON r.run = a.run AND r.kind = a.kind AND r.step = a.step AND r.task = a.task AND r.sample = a.sample AND r.attempt = a.attempt
JOIN calls c ON c.run = a.run AND c.kind = a.kind AND c.step = a.step AND c.task = a.task AND c.sample = a.sample AND c.attempt = a.attempt
WHERE a.run = $1 AND a.policy = $2 AND a.kind IN ('train', 'reserve') AND a.outcome IN ('completed', 'agent_failed')
GROUP BY c.policy ORDER BY c.policy`

// PolicyUsage counts the calls and sampled tokens of each policy that answered calls of a run's
// training attempts that count, by the name of the policy. The attempts are those under the
// given policy. It reads all of them and their calls.
func (s *Store) PolicyUsage(ctx context.Context, run, policy string) ([]record.PolicyUsage, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (u record.PolicyUsage, err error) {
		err = row(&u.Policy, &u.Calls, &u.Tokens)
		return u, err
	}, selectPolicyUsage, run, policy)
	if err != nil {
		return nil, fmt.Errorf("count calls of the policies of %s: %w", run, err)
	}
	return all, nil
}

const selectSpent = `SELECT COALESCE(SUM(calls), 0) + (SELECT COUNT(*) FROM judgments WHERE run = $1) + (SELECT COUNT(*) FROM nonsense WHERE run = $1)
	+ (SELECT COUNT(*) FROM reflections WHERE run = $1), COALESCE(SUM(tokens), 0)
FROM attempts WHERE run = $1 AND kind <> 'served'`

// Spent counts what a run has used so far, without conversations of users. It reads all attempts of the run.
func (s *Store) Spent(ctx context.Context, run string) (record.Spent, error) {
	spent, err := database.One(ctx, s.db.Read(), func(row database.Scan) (spent record.Spent, err error) {
		err = row(&spent.Calls, &spent.Tokens)
		return spent, err
	}, selectSpent, run)
	if err != nil {
		return spent, fmt.Errorf("count what run %s has used: %w", run, err)
	}
	return spent, nil
}

// TrialsOfStep returns what became of every attempt of a step, of all policies, by task,
// sample and attempt, without Progress. It is no error if there are none.
func (s *Store) TrialsOfStep(ctx context.Context, run string, kind record.Kind, step int) ([]record.Trial, error) {
	all, err := database.List(ctx, s.db.Read(), readTrial(run), selectTrialsOfStep, run, kind, step)
	if err != nil {
		return nil, fmt.Errorf("list trials of %s/%s-%d: %w", run, kind, step, err)
	}
	if err := s.countCutOff(ctx, all, selectCutOff+cutOffOfKind, run, kind, step); err != nil {
		return nil, fmt.Errorf("list trials of %s/%s-%d: %w", run, kind, step, err)
	}
	return all, nil
}

// TrialsOfGroup returns the result of every attempt at one task of a step, in the same
// form as TrialsOfStep.
func (s *Store) TrialsOfGroup(ctx context.Context, run string, kind record.Kind, step, task int) ([]record.Trial, error) {
	all, err := database.List(ctx, s.db.Read(), readTrial(run), selectTrialsOfGroup, run, kind, step, task)
	if err != nil {
		return nil, fmt.Errorf("list trials of %s/%s-%d/%d: %w", run, kind, step, task, err)
	}
	if err := s.countCutOff(ctx, all, selectCutOff+cutOffOfKind+" AND task = $4", run, kind, step, task); err != nil {
		return nil, fmt.Errorf("list trials of %s/%s-%d/%d: %w", run, kind, step, task, err)
	}
	return all, nil
}

// TrialsCutOff returns the attempts of a run with a reply that a limit of tokens ended, at
// most most of them, in the order and form of Trials, without Progress. It is no error if
// there are none.
func (s *Store) TrialsCutOff(ctx context.Context, run string, most int) ([]record.Trial, error) {
	all, err := database.List(ctx, s.db.Read(), readTrial(run), selectTrialsCutOff, run, most)
	if err == nil {
		err = s.countCutOff(ctx, all, selectCutOff, run)
	}
	if err != nil {
		return nil, fmt.Errorf("list trials of %s with replies that were cut off: %w", run, err)
	}
	return all, nil
}

// countCutOff sets how many replies of each attempt were cut off. The arguments begin with
// the run.
func (s *Store) countCutOff(ctx context.Context, all []record.Trial, query string, run string, rest ...any) error {
	if len(all) == 0 {
		return nil
	}
	counts := map[record.Address]int{}
	_, err := database.List(ctx, s.db.Read(), func(row database.Scan) (none struct{}, err error) {
		a := addressIn(run)
		var n int
		err = row(&a.Kind, &a.Step, &a.Task, &a.Sample, &a.Attempt, &n)
		counts[a] = n
		return none, err
	}, query+groupCutOff, append([]any{run}, rest...)...)
	if err != nil {
		return fmt.Errorf("count replies that were cut off: %w", err)
	}
	for i := range all {
		all[i].CutOff = counts[all[i].Address]
	}
	return nil
}

func readTrial(run string) func(database.Scan) (record.Trial, error) {
	return func(row database.Scan) (record.Trial, error) {
		t := record.Trial{Address: addressIn(run)}
		err := row(&t.Kind, &t.Step, &t.Task, &t.Sample, &t.Attempt, &t.TaskID, &t.Outcome, &t.Failure, &t.Reward, &t.Calls, &t.Tokens, at(&t.Begun))
		return t, err
	}
}

// The place of the newest group combines its step and its task in one number, since MAX
// works on one number.
const (
	placeOfTask = 1 << 32
	// An attempt counts if it has a result and no later attempt took its place. Samples of
	// evaluations on the test split from $4 on were made at temperature 0, so they are
	// left out.
	fromCounted = ` FROM attempts a JOIN rollouts r ON r.run = a.run AND r.kind = a.kind AND r.step = a.step AND r.task = a.task
AND r.sample = a.sample AND r.attempt = a.attempt` + joinGrade + ` WHERE a.run = $1 AND a.policy = $2 AND a.outcome IN ('completed', 'agent_failed')
AND a.kind <> 'served' AND NOT (a.kind = 'test' AND a.sample >= $4)`
	selectResults = `SELECT a.kind, a.task_id, COUNT(*), COUNT(COALESCE(a.reward, g.value)), AVG(COALESCE(a.reward, g.value)),
MIN(COALESCE(a.reward, g.value)), MAX(COALESCE(a.reward, g.value)),
SUM(CASE WHEN COALESCE(a.reward, g.value) >= $3 THEN 1 ELSE 0 END), SUM(CASE WHEN a.outcome = 'agent_failed' THEN 1 ELSE 0 END),
MAX(a.step * 4294967296 + a.task)` + fromCounted + `
GROUP BY a.kind, a.task_id ORDER BY a.kind, a.task_id`
)

// TaskResults returns the results of a run's attempts at each task that count, by kind and
// task. An attempt with a reward of at least pass is passed. Samples of the test split from
// greedy on are left out. It reads all attempts of the run, so a frequent caller should keep
// the answer.
func (s *Store) TaskResults(ctx context.Context, run, policy string, pass float64, greedy int) ([]record.TaskResult, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (r record.TaskResult, err error) {
		var mean, low, high *float64
		var place int
		err = row(&r.Kind, &r.TaskID, &r.Attempts, &r.Graded, &mean, &low, &high, &r.Passed, &r.Failed, &place)
		if mean != nil {
			r.Mean, r.Min, r.Max = *mean, *low, *high
		}
		r.Step, r.Task = place/placeOfTask, place%placeOfTask
		return r, err
	}, selectResults, run, policy, pass, greedy)
	if err != nil {
		return nil, fmt.Errorf("read results of tasks of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

const selectMoments = `SELECT a.kind, a.task_id, a.step, COUNT(COALESCE(a.reward, g.value)), SUM(CASE WHEN COALESCE(a.reward, g.value) >= $3 THEN 1 ELSE 0 END)` + fromCounted + `
GROUP BY a.kind, a.step, a.task_id ORDER BY a.kind, a.step, a.task_id`

// TaskMoments returns, step by step, the graded results of which TaskResults is the sum, at
// the tasks for which keep returns true, or at all tasks if keep is nil. It reads as much as
// TaskResults.
func (s *Store) TaskMoments(ctx context.Context, run, policy string, pass float64, greedy int, keep func(record.Kind, string) bool) ([]record.TaskMoment, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (m record.TaskMoment, err error) {
		err = row(&m.Kind, &m.TaskID, &m.Step, &m.Graded, &m.Passed)
		return m, err
	}, selectMoments, run, policy, pass, greedy)
	if err != nil {
		return nil, fmt.Errorf("read results of tasks of %s/%s by step: %w", run, policy, err)
	}
	return slices.DeleteFunc(all, func(m record.TaskMoment) bool { return m.Graded == 0 || keep != nil && !keep(m.Kind, m.TaskID) }), nil
}

const selectInterruptions = `SELECT a.kind, a.step, a.task, a.sample, a.attempt, a.outcome, a.error, a.begun, n.begun,
(SELECT MAX(CASE WHEN c.recorded > 0 THEN c.recorded ELSE c.started + c.duration END) FROM calls c WHERE c.run = a.run AND c.kind = a.kind
AND c.step = a.step AND c.task = a.task AND c.sample = a.sample AND c.attempt = a.attempt) FROM attempts a JOIN attempts n ON n.run = a.run
AND n.kind = a.kind AND n.step = a.step AND n.task = a.task AND n.sample = a.sample AND n.attempt = a.attempt + 1
WHERE a.run = $1 AND a.outcome IN ('', 'infra_fault') AND a.kind <> 'served' ORDER BY a.begun DESC LIMIT $2`

// LatestInterruptions returns the attempts of a run that a fault ended and another
// attempt replaced, at most most of them, the latest first. It is no error if there are
// none.
func (s *Store) LatestInterruptions(ctx context.Context, run string, most int) ([]record.Interruption, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (record.Interruption, error) {
		i := record.Interruption{Address: addressIn(run)}
		var last *int64
		err := row(&i.Kind, &i.Step, &i.Task, &i.Sample, &i.Attempt, &i.Outcome, &i.Error, at(&i.Begun), at(&i.Again), &last)
		i.Last = i.Begun
		if last != nil && *last > i.Begun.UnixNano() {
			i.Last = time.Unix(0, *last).UTC()
		}
		return i, err
	}, selectInterruptions, run, most)
	if err != nil {
		return nil, fmt.Errorf("list the latest interruptions of %s: %w", run, err)
	}
	return all, nil
}

// progress returns when each attempt that was cut off last recorded a call or an event.
func (s *Store) progress(ctx context.Context, run, policy string) (map[record.Address]time.Time, error) {
	last := map[record.Address]time.Time{}
	for table, moment := range map[string]string{
		"calls":  `CASE WHEN x.recorded > 0 THEN x.recorded ELSE x.started + x.duration END`,
		"events": `x.at`,
	} {
		_, err := database.List(ctx, s.db.Read(), func(row database.Scan) (struct{}, error) {
			a := addressIn(run)
			var t time.Time
			err := row(&a.Kind, &a.Step, &a.Task, &a.Sample, &a.Attempt, at(&t))
			if t.After(last[a]) {
				last[a] = t
			}
			return struct{}{}, err
		}, fmt.Sprintf(lastActivity, moment, table), run, policy)
		if err != nil {
			return nil, fmt.Errorf("last %s: %w", table, err)
		}
	}
	return last, nil
}

func addressIn(run string) record.Address {
	return record.Address{RolloutID: record.RolloutID{Run: run}}
}

const (
	insertEvaluation = `INSERT INTO evaluations (run, policy, kind, version, tasks, rollouts, mean, std_error, greedy, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING`
	selectEvaluations = `SELECT run, policy, kind, version, tasks, rollouts, mean, std_error, greedy, at FROM evaluations WHERE run = $1`
	// The kinds are listed because the key has the kind before the version.
	evaluationsBetween = selectEvaluations + ` AND policy = $2 AND kind IN ('train', 'gate', 'test') AND version >= $3 AND version < $4 ORDER BY version, kind`
)

// PutEvaluation records the evaluation of a version on a split. Recording it again
// changes nothing; other values, except for At, return record.ErrConflict. If At is zero,
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
	if err := refuseRemoved(t, e.Run); err != nil {
		return err
	}
	args := []any{e.Run, e.Policy, e.Kind, e.Version, e.Tasks, e.Rollouts, e.Mean, e.StdError, e.Greedy, database.Nanos(e.At)}
	old, _, err := database.InsertOrFind(t, insertEvaluation, args, func() (record.Evaluation, error) {
		return database.One(t.Ctx, t, readEvaluation, selectEvaluations+` AND policy = $2 AND kind = $3 AND version = $4`, e.Run, e.Policy, e.Kind, e.Version)
	})
	if err != nil {
		return err
	}
	if old.Tasks != e.Tasks || old.Rollouts != e.Rollouts || old.Mean != e.Mean || old.StdError != e.StdError || !sameNumber(old.Greedy, e.Greedy) {
		return fmt.Errorf("%w: it is on record with other values", record.ErrConflict)
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
