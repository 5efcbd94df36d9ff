package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

const (
	insertForgotten = `INSERT INTO forgotten (run, what, task, person, reason, report, begun, ended) VALUES ($1, $2, $3, $4, $5, $6, $7, 0) ON CONFLICT DO NOTHING`
	selectForgotten = `SELECT run, what, task, person, reason, report, begun, ended FROM forgotten`
	forgottenOfRun  = selectForgotten + ` WHERE run = $1 ORDER BY what, task`
	forgottenRun    = selectForgotten + ` WHERE run = $1 AND what = 'run'`
	endForgotten    = `UPDATE forgotten SET ended = $4, report = $5 WHERE run = $1 AND what = $2 AND task = $3`

	markForgetting = `UPDATE runs SET status = 'forgetting' WHERE name = $1 AND execution_id = $2 AND status = $3`
	// An agent that still runs may send calls. They are refused once its attempt has ended.
	cutOff       = `UPDATE attempts SET outcome = 'infra_fault'`
	deleteRun    = `DELETE FROM runs WHERE name = $1 AND status = 'forgetting'`
	updateSplits = `UPDATE runs SET splits = $2 WHERE name = $1`
	updateResult = `UPDATE runs SET result = $2 WHERE name = $1`
)

// attemptTables hold what an attempt left. Those with texts and tokens come first, so that
// they are gone first.
var attemptTables = []string{"exchanges", "calls", "spans", "events", "rewards", "refusals", "grading_failures"}

// runTables are all tables with rows of runs, except for runs and forgotten, in the order
// in which a run is removed.
var runTables = slices.Concat(attemptTables, []string{
	"shadow_replies", "feedback", "conversation_replies", "conversations", "segments", "traffic_settings",
	"attempts", "rollouts", "judgments", "nonsense", "reflections", "search_answers", "prompt_versions", "choices", "quarantines",
	"evaluations", "experiments", "decisions", "promotions", "promoted", "steps", "batches", "progress", "pending_files", "archives", "versions", "actions",
})

// BeginForgetting puts a tombstone on record before anything is removed. The run has to be
// the one on record, and must have ended: otherwise it is record.ErrConflict. From then on
// a run that is removed has the status record.Forgetting. A tombstone that is on record
// stays, with its report, and is returned; created says whether this call stored it. While
// the removal of a task has not ended, neither another task nor the run can be removed, and
// what is removed of a task has to be planned from the snapshots that the run has now: both
// are record.ErrConflict. What a
// user said may also be removed from a run that is under way, since conversations go on as
// long as versions are served: the caller makes sure that the run has not learned from it.
func (s *Store) BeginForgetting(ctx context.Context, r record.Run, f record.Forgotten) (stored record.Forgotten, created bool, err error) {
	args := []any{f.Run, string(f.What), f.Task, f.By, f.Reason, string(f.Report), database.Nanos(orNow(f.Begun))}
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		now, err := database.One(t.Ctx, t, readRun, selectRun+t.ForUpdate, f.Run)
		if err != nil {
			return notFound(err)
		}
		if now.Status == record.Running && f.What != record.ForgottenUser || now.ExecutionID != r.ExecutionID || now.Status != r.Status {
			return fmt.Errorf("%w: it is %s", record.ErrConflict, now.Status)
		}
		if f.What == record.ForgottenRun || f.What == record.ForgottenTask {
			if err := refuseBesideTask(t, now, r, f); err != nil {
				return err
			}
		}
		stored, created, err = database.InsertOrFind(t, insertForgotten, args, func() (record.Forgotten, error) {
			return database.One(t.Ctx, t, readForgotten, selectForgotten+` WHERE run = $1 AND what = $2 AND task = $3`, f.Run, string(f.What), f.Task)
		})
		if err == nil && f.What == record.ForgottenRun {
			_, err = t.Exec(markForgetting, r.Name, r.ExecutionID, r.Status)
		}
		return err
	})
	if err != nil {
		return stored, false, fmt.Errorf("begin to forget %s of run %s: %w", f.What, f.Run, err)
	}
	return stored, created, nil
}

// refuseBesideTask returns an error if the removal of another task is under way, or has ended
// since r was read. Both would write their own snapshots of the run's tasks, so that the one
// brings back what the other removes.
func refuseBesideTask(t database.Tx, now, r record.Run, f record.Forgotten) error {
	all, err := database.List(t.Ctx, t, readForgotten, forgottenOfRun, f.Run)
	if err != nil {
		return err
	}
	for _, one := range all {
		if one.What != record.ForgottenTask || one.What == f.What && one.Task == f.Task {
			continue
		}
		if one.Ended.IsZero() {
			return fmt.Errorf("%w: the removal of its task %q has begun and not ended", record.ErrConflict, one.Task)
		}
	}
	for kind, split := range now.Splits {
		if f.What == record.ForgottenTask && r.Splits[kind].Digest != split.Digest {
			return fmt.Errorf("%w: another task was removed from its split %s meanwhile", record.ErrConflict, kind)
		}
	}
	return nil
}

// EndForgetting records that everything is gone, and what it was. It removes the row of a
// run that is removed, so its other rows have to be gone.
func (s *Store) EndForgetting(ctx context.Context, f record.Forgotten) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if f.What == record.ForgottenRun {
			if _, err := t.Exec(deleteRun, f.Run); err != nil {
				return err
			}
		}
		_, err := t.Exec(endForgotten, f.Run, string(f.What), f.Task, database.Nanos(orNow(f.Ended)), string(f.Report))
		return err
	})
	if err != nil {
		return fmt.Errorf("end to forget %s of run %s: %w", f.What, f.Run, err)
	}
	return nil
}

// Forgotten returns the tombstones of a run and of what was removed from it. It is no error
// if there are none.
func (s *Store) Forgotten(ctx context.Context, run string) ([]record.Forgotten, error) {
	all, err := database.List(ctx, s.db.Read(), readForgotten, forgottenOfRun, run)
	if err != nil {
		return nil, fmt.Errorf("list what was forgotten of run %s: %w", run, err)
	}
	return all, nil
}

func readForgotten(row database.Scan) (record.Forgotten, error) {
	var f record.Forgotten
	var report string
	err := row(&f.Run, &f.What, &f.Task, &f.By, &f.Reason, &report, at(&f.Begun), at(&f.Ended))
	f.Report = raw(report)
	return f, err
}

// RowsOfRun counts the rows of a run in all tables that have some. It reads all of them, so
// it takes time, and locks nothing.
func (s *Store) RowsOfRun(ctx context.Context, run string) ([]record.RowCount, error) {
	var out []record.RowCount
	for _, table := range runTables {
		n, err := database.One(ctx, s.db.Read(), database.Scalar[int], `SELECT COUNT(*) FROM `+table+` WHERE run = $1`, run)
		if err != nil {
			return nil, fmt.Errorf("count %s of run %s: %w", table, run, err)
		}
		if n > 0 {
			out = append(out, record.RowCount{Table: table, Rows: n})
		}
	}
	return out, nil
}

// RemoveRows removes all rows of a run but those of the run itself and of its tombstones,
// in transactions of about 20 ms. If it is interrupted, the next call continues. The run
// has to have the status record.Forgetting.
func (s *Store) RemoveRows(ctx context.Context, run string) error {
	if err := s.changeRows(ctx, cutOff, "attempts", `run = $1 AND outcome = '' AND EXISTS (SELECT 1 FROM runs WHERE name = $1 AND status = 'forgetting')`, run); err != nil {
		return fmt.Errorf("end the open attempts of run %s: %w", run, err)
	}
	for _, table := range runTables {
		if err := s.removeRows(ctx, table, `run = $1 AND EXISTS (SELECT 1 FROM runs WHERE name = $1 AND status = 'forgetting')`, run); err != nil {
			return fmt.Errorf("remove %s of run %s: %w", table, run, err)
		}
	}
	return nil
}

// Scrub makes the database overwrite or give up the space of removed rows, as far as it
// does that without being rewritten. Other writers wait for some milliseconds at a time. If
// whole is true, it is rewritten: all other writers wait until that ends, and as much free disk
// is needed as the database has. A call that is interrupted has no effect, or part of it.
func (s *Store) Scrub(ctx context.Context, whole bool) error {
	if err := s.db.Scrub(ctx, whole); err != nil {
		return fmt.Errorf("scrub store: %w", err)
	}
	return nil
}

const (
	attemptsOnTask = `SELECT kind, step, task, sample, attempt FROM attempts WHERE run = $1 AND task_id = $2 ORDER BY kind, step, task, sample, attempt`
	// The second condition is that of the index attempts_of_task.
	runsOnTask = `SELECT DISTINCT run FROM attempts WHERE task_id = $1 AND task_id <> '' ORDER BY run`

	// A grader's reward may be only in the table of rewards, whose rows go.
	emptyAttempt = `UPDATE attempts SET reward = COALESCE(reward, (SELECT g.value FROM rewards g WHERE g.run = attempts.run AND g.kind = attempts.kind
AND g.step = attempts.step AND g.task = attempts.task AND g.sample = attempts.sample AND g.attempt = attempts.attempt AND g.name = 'final' AND g.call_id = '' AND g.source = 'grader')),
outcome = CASE outcome WHEN '' THEN 'infra_fault' ELSE outcome END, result = '', error = $7, stdout = '', stderr = '', verdict = '' WHERE run = $1 AND kind = $2 AND step = $3 AND task = $4 AND sample = $5 AND attempt = $6`
	emptyQuarantine  = `UPDATE quarantines SET reason = $5 WHERE run = $1 AND kind = $2 AND step = $3 AND task = $4`
	emptyQuarantines = `UPDATE quarantines SET reason = $3 WHERE run = $1 AND place = $2`

	rowsOfAttempt = `run = $1 AND kind = $2 AND step = $3 AND task = $4 AND sample = $5 AND attempt = $6`
	rowsOfStep    = `run = $1 AND step = $2`
)

// AttemptsOnTask returns the addresses of all attempts of a run on the task with an id. It
// is no error if there are none.
func (s *Store) AttemptsOnTask(ctx context.Context, run, task string) ([]record.Address, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (record.Address, error) {
		a := addressIn(run)
		err := row(&a.Kind, &a.Step, &a.Task, &a.Sample, &a.Attempt)
		return a, err
	}, attemptsOnTask, run, task)
	if err != nil {
		return nil, fmt.Errorf("list attempts of run %s on task %s: %w", run, task, err)
	}
	return all, nil
}

// RunsOnTask returns the names of the runs with an attempt on the task with an id.
func (s *Store) RunsOnTask(ctx context.Context, task string) ([]string, error) {
	all, err := database.List(ctx, s.db.Read(), database.Scalar[string], runsOnTask, task)
	if err != nil {
		return nil, fmt.Errorf("list runs with attempts on task %s: %w", task, err)
	}
	return all, nil
}

// ForgottenError is the error of an attempt whose task was forgotten.
const ForgottenError = "its task was forgotten"

// EmptyAttempt removes what an attempt left, and all texts of its row. The row stays, with
// its outcome, reward and counts. An open attempt ends, so that its agent's calls are
// refused from then on.
func (s *Store) EmptyAttempt(ctx context.Context, a record.Address) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if t.ForUpdate == "" {
			if _, err := t.Exec("PRAGMA secure_delete = ON"); err != nil {
				return err
			}
		}
		if _, err := t.Exec(emptyAttempt, append(attemptKey(a), ForgottenError)...); err != nil {
			return err
		}
		_, err := t.Exec(emptyQuarantine, a.Run, a.Kind, a.Step, a.Task, ForgottenError)
		return err
	})
	for _, table := range attemptTables {
		if err == nil {
			err = s.removeRows(ctx, table, rowsOfAttempt, attemptKey(a)...)
		}
	}
	if err != nil {
		return fmt.Errorf("empty attempt %s: %w", a, err)
	}
	return nil
}

// EmptyQuarantines removes the reasons of all quarantines of the task with an index in the
// train split of a run. Those of later steps repeat the reason of the first one, and have no
// attempt by which EmptyAttempt would find them.
func (s *Store) EmptyQuarantines(ctx context.Context, run string, index int) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if t.ForUpdate == "" {
			if _, err := t.Exec("PRAGMA secure_delete = ON"); err != nil {
				return err
			}
		}
		_, err := t.Exec(emptyQuarantines, run, index, ForgottenError)
		return err
	})
	if err != nil {
		return fmt.Errorf("empty the quarantines of task %d of run %s: %w", index, run, err)
	}
	return nil
}

// RemoveJudgments removes what judges said of the calls of a step.
func (s *Store) RemoveJudgments(ctx context.Context, run string, step int) error {
	for _, table := range []string{"judgments", "nonsense"} {
		if err := s.removeRows(ctx, table, rowsOfStep, run, step); err != nil {
			return fmt.Errorf("remove %s of %s step %d: %w", table, run, step, err)
		}
	}
	return nil
}

// RemoveReflections removes what reflectors replied to a run. Their answers to the search
// stay.
func (s *Store) RemoveReflections(ctx context.Context, run string) error {
	if err := s.removeRows(ctx, "reflections", `run = $1`, run); err != nil {
		return fmt.Errorf("remove reflections of run %s: %w", run, err)
	}
	return nil
}

// SetSplits changes which snapshots of tasks a run that has ended names.
func (s *Store) SetSplits(ctx context.Context, run string, splits map[record.Kind]record.Split) error {
	text, err := encode("splits", splits)
	if err == nil {
		err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
			_, err := t.Exec(updateSplits, run, text)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("change the splits of run %s: %w", run, err)
	}
	return nil
}

// SetResult changes the result of a run that has ended.
func (s *Store) SetResult(ctx context.Context, run string, result []byte) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		_, err := t.Exec(updateResult, run, string(result))
		return err
	})
	if err != nil {
		return fmt.Errorf("change the result of run %s: %w", run, err)
	}
	return nil
}

// bodyTables hold what explains an attempt and is not trained on.
var bodyTables = []string{"exchanges", "spans"}

const (
	emptyOutputs    = `UPDATE attempts SET stdout = '', stderr = ''`
	withOutputs     = `run = $1 AND kind = $2 AND step = $3 AND (stdout <> '' OR stderr <> '')`
	selectKindSteps = `SELECT DISTINCT kind, step FROM attempts WHERE run = $1 ORDER BY kind, step`
	sumBodies       = `SELECT COALESCE(SUM(LENGTH(request) + LENGTH(response)), 0) FROM exchanges WHERE run = $1 AND kind <> 'served'`
	sumSpans        = `SELECT COALESCE(SUM(LENGTH(attributes) + LENGTH(message)), 0) FROM spans WHERE run = $1 AND kind <> 'served'`
	sumShadow       = `SELECT COALESCE(SUM(LENGTH(reply) + LENGTH(error)), 0) FROM shadow_replies WHERE run = $1`
	sumOutputs      = `SELECT COALESCE(SUM(LENGTH(stdout) + LENGTH(stderr)), 0) FROM attempts WHERE run = $1`
)

// BodyBytes returns about how many bytes the bodies, spans and printed outputs of a run
// have, without those of conversations, and what candidates replied in the shadow. It reads
// all of them.
func (s *Store) BodyBytes(ctx context.Context, run string) (sum int64, err error) {
	for _, query := range []string{sumBodies, sumSpans, sumShadow, sumOutputs} {
		n, err := database.One(ctx, s.db.Read(), database.Scalar[int64], query, run)
		if err != nil {
			return 0, fmt.Errorf("sum up the bodies of run %s: %w", run, err)
		}
		sum += n
	}
	return sum, nil
}

// RemoveBodies removes the bodies, spans and printed outputs of all attempts of a run, and what
// candidates replied in the shadow: the decisions have the counts. Calls keep their tokens.
// Conversations stay whole: they go on after the run's end.
func (s *Store) RemoveBodies(ctx context.Context, run string) error {
	for _, table := range bodyTables {
		// With <> a database would read all served ones in each transaction.
		for _, where := range []string{`run = $1 AND kind < 'served'`, `run = $1 AND kind > 'served'`} {
			if err := s.removeRows(ctx, table, where, run); err != nil {
				return fmt.Errorf("remove %s of run %s: %w", table, run, err)
			}
		}
	}
	if err := s.removeRows(ctx, "shadow_replies", `run = $1`, run); err != nil {
		return fmt.Errorf("remove shadow_replies of run %s: %w", run, err)
	}
	type step struct {
		kind record.Kind
		step int
	}
	steps, err := database.List(ctx, s.db.Read(), func(row database.Scan) (one step, err error) {
		err = row(&one.kind, &one.step)
		return one, err
	}, selectKindSteps, run)
	for _, one := range steps {
		if err == nil {
			err = s.changeRows(ctx, emptyOutputs, "attempts", withOutputs, run, one.kind, one.step)
		}
	}
	if err != nil {
		return fmt.Errorf("remove what agents of run %s printed: %w", run, err)
	}
	return nil
}
