package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

const (
	insertRun = `INSERT INTO runs (name, workflow_id, execution_id, spec_digest, spec, splits, status, result, created, finished)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (name) DO UPDATE SET workflow_id = excluded.workflow_id,
execution_id = excluded.execution_id, spec_digest = excluded.spec_digest, spec = excluded.spec, splits = excluded.splits, status = excluded.status,
result = excluded.result, created = excluded.created, finished = excluded.finished WHERE runs.status = 'refused'`
	selectRuns = `SELECT name, workflow_id, execution_id, spec_digest, spec, splits, status, result, created, finished FROM runs`
	selectRun  = selectRuns + ` WHERE name = $1`
	finishRun  = `UPDATE runs SET status = $2, result = $3, finished = $4 WHERE name = $1 AND (status = 'running' OR status = $2 AND result = $3)`
	reopenRun  = `UPDATE runs SET status = 'running', result = '', finished = 0 WHERE name = $1 AND execution_id = $2 AND status = $3 AND finished = $4`
	rebindRun  = `UPDATE runs SET execution_id = $4 WHERE name = $1 AND execution_id = $2 AND status = $3`

	// An attempt that a later one replaced is not changed.
	endAttempts = `UPDATE attempts SET outcome = 'infra_fault', error = $2, ended = $3
WHERE run = $1 AND outcome = '' AND kind IN ('train', 'reserve', 'gate', 'test', 'minibatch', 'validation') AND attempt = (SELECT r.attempt FROM rollouts r
WHERE r.run = attempts.run AND r.kind = attempts.kind AND r.step = attempts.step AND r.task = attempts.task AND r.sample = attempts.sample) RETURNING kind`

	insertAction = `INSERT INTO actions (id, run, name, person, reason, input, at, outcome, result) VALUES ($1, $2, $3, $4, $5, $6, $7, 'asked', '{}') ON CONFLICT DO NOTHING`
	selectAction = `SELECT id, run, name, person, reason, input, at, outcome, result FROM actions`
	endAction    = `UPDATE actions SET outcome = $2, result = $3 WHERE id = $1 AND outcome = 'asked'`
)

// CreateRun stores r unless there is a run with its name. It returns the run with that
// name and whether this call stored it. A refused run is replaced. The caller has to
// decide, by SpecDigest, whether an earlier run is the same training. An empty Status
// means record.Running, and a zero Created the current time. The name of a run that was
// forgotten is record.ErrForgotten. A split whose tasks are not there is ErrFileGone: they
// were removed with a run that had the same.
func (s *Store) CreateRun(ctx context.Context, r record.Run) (record.Run, bool, error) {
	if err := record.CheckRunName(r.Name); err != nil {
		return record.Run{}, false, fmt.Errorf("create run: %w", err)
	}
	if r.Status == "" {
		r.Status = record.Running
	}
	splits, err := encode("splits", r.Splits)
	if err != nil {
		return record.Run{}, false, fmt.Errorf("create run %s: %w", r.Name, err)
	}
	args := []any{r.Name, r.WorkflowID, r.ExecutionID, r.SpecDigest, string(r.Spec), splits, r.Status, string(r.Result), database.Nanos(orNow(r.Created)), database.Nanos(r.Finished)}
	var stored record.Run
	var created bool
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) (err error) {
		if err := refuseForgotten(t, r.Name); err != nil {
			return err
		}
		stored, created, err = database.InsertOrFind(t, insertRun, args, func() (record.Run, error) {
			return database.One(t.Ctx, t, readRun, selectRun, r.Name)
		})
		if err == nil && created {
			err = s.haveSplits(t.Ctx, r)
		}
		return err
	})
	if err != nil {
		return record.Run{}, false, fmt.Errorf("create run %s: %w", r.Name, err)
	}
	return stored, created, nil
}

// Run returns the run of that name, or record.ErrNotFound. The error of a run that was
// forgotten, or whose removal has begun, is record.ErrForgotten, too, and says when and by
// whom.
func (s *Store) Run(ctx context.Context, name string) (record.Run, error) {
	r, err := database.One(ctx, s.db.Read(), readRun, selectRun, name)
	if err == nil && r.Status == record.Forgetting {
		err = sql.ErrNoRows
	}
	if err != nil {
		return record.Run{}, fmt.Errorf("read run %q: %w", name, missingRun(ctx, s.db.Read(), name, err))
	}
	return r, nil
}

// RunToForget is like Run, but also returns a run whose removal has begun, for whoever
// continues the removal.
func (s *Store) RunToForget(ctx context.Context, name string) (record.Run, error) {
	r, err := database.One(ctx, s.db.Read(), readRun, selectRun, name)
	if err != nil {
		return record.Run{}, fmt.Errorf("read run %q: %w", name, missingRun(ctx, s.db.Read(), name, err))
	}
	return r, nil
}

// Runs returns all runs, the newest first.
func (s *Store) Runs(ctx context.Context) ([]record.Run, error) {
	runs, err := database.List(ctx, s.db.Read(), readRun, selectRuns+` ORDER BY created DESC, name`)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	return runs, nil
}

// LatestRuns returns runs, the newest first: it skips the first from of them and returns
// at most most. It is no error if there are none.
func (s *Store) LatestRuns(ctx context.Context, from, most int) ([]record.Run, error) {
	runs, err := database.List(ctx, s.db.Read(), readRun, selectRuns+` ORDER BY created DESC, name LIMIT $1 OFFSET $2`, most, from)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	return runs, nil
}

// RunsLike returns the runs that a query selects, and how many it selects whatever its From
// and Most. It is no error if there are none.
func (s *Store) RunsLike(ctx context.Context, q record.RunQuery) (runs []record.Run, found int, err error) {
	literally := strings.NewReplacer("!", "!!", "%", "!%", "_", "!_")
	// Names have no capital letters.
	where, args := ` WHERE name LIKE $1 ESCAPE '!'`, []any{"%" + literally.Replace(strings.ToLower(database.ValidText(q.Word))) + "%"}
	if q.Status != "" {
		args, where = append(args, q.Status), where+` AND status = $2`
	}
	if q.Otherwise {
		where += ` AND status NOT IN ('running', 'completed')`
	}
	if found, err = database.One(ctx, s.db.Read(), database.Scalar[int], `SELECT COUNT(*) FROM runs`+where, args...); err != nil {
		return nil, 0, fmt.Errorf("count runs: %w", err)
	}
	if q.Most == 0 {
		return nil, found, nil
	}
	limit := fmt.Sprintf(` LIMIT $%d OFFSET $%d`, len(args)+1, len(args)+2)
	args = append(args, q.Most, q.From)
	order := ` ORDER BY created DESC, name`
	switch q.Order {
	case record.NewestRuns:
	case record.OldestRuns:
		order = ` ORDER BY created, name`
	case record.RunsByName:
		order = ` ORDER BY name`
	case record.LongestRuns:
		args = append(args, database.Nanos(time.Now()))
		order = fmt.Sprintf(` ORDER BY CASE WHEN finished = 0 THEN $%d ELSE finished END - created DESC, name`, len(args))
	default:
		return nil, 0, fmt.Errorf("list runs: there is no order %q", q.Order)
	}
	if runs, err = database.List(ctx, s.db.Read(), readRun, selectRuns+where+order+limit, args...); err != nil {
		return nil, 0, fmt.Errorf("list runs: %w", err)
	}
	return runs, found, nil
}

// FinishRun ends a run and seals its running attempts as faults, so that later requests
// and reports of their agents are refused. Ending a finished run again in the same way
// changes nothing but the time; another way returns record.ErrConflict.
func (s *Store) FinishRun(ctx context.Context, name string, status record.Status, result []byte) error {
	if status == record.Running || status == "" {
		return fmt.Errorf("finish run %s: %q is not an end", name, status)
	}
	now, text := database.Nanos(time.Now()), database.ValidText(string(result))
	var sealed []string // the kinds of the attempts that this ends
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		n, err := t.Exec(finishRun, name, status, text, now)
		sealed = nil
		if err == nil && n == 1 {
			sealed, err = database.List(t.Ctx, t, database.Scalar[string], endAttempts, name, fmt.Sprintf("the run ended: it is %s", status), now)
		}
		if err == nil && n == 1 { // whoever closes the record, no candidate answers users any more
			_, err = t.Exec(endExperiments, name, fmt.Sprintf("the run has ended: it is %s", status), now)
		}
		if err != nil || n == 1 {
			return err
		}
		r, err := database.One(t.Ctx, t, readRun, selectRun, name)
		if err != nil {
			return notFound(err)
		}
		if r.Status != status || string(r.Result) != text {
			return fmt.Errorf("%w: it %s already", record.ErrConflict, r.Status)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("finish run %s: %w", name, err)
	}
	for _, kind := range sealed {
		s.metrics.Rollout(kind, string(record.InfraFault))
	}
	return nil
}

// ReopenRun marks a run that ended as running again. It is record.ErrConflict if the run's
// execution, status or end differ from r by now, and record.ErrForgotten if something was
// removed from it.
func (s *Store) ReopenRun(ctx context.Context, r record.Run) error {
	return s.swap(ctx, "reopen", r, func(t database.Tx) (int64, error) {
		if err := refuseChanged(t, r.Name); err != nil {
			return 0, err
		}
		return t.Exec(reopenRun, r.Name, r.ExecutionID, r.Status, database.Nanos(r.Finished))
	})
}

// RebindRun records that a run that is under way continues in another execution, because
// the one that the row names is lost. It is record.ErrConflict if the row differs from r by
// now.
func (s *Store) RebindRun(ctx context.Context, r record.Run, execution string) error {
	return s.swap(ctx, "rebind", r, func(t database.Tx) (int64, error) {
		return t.Exec(rebindRun, r.Name, r.ExecutionID, r.Status, execution)
	})
}

// swap changes the row of r if it is still equal to r.
func (s *Store) swap(ctx context.Context, what string, r record.Run, change func(database.Tx) (int64, error)) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		n, err := change(t)
		if err != nil || n == 1 {
			return err
		}
		now, err := database.One(t.Ctx, t, readRun, selectRun, r.Name)
		if err != nil {
			return notFound(err)
		}
		return fmt.Errorf("%w: it is %s", record.ErrConflict, now.Status)
	})
	if err != nil {
		return fmt.Errorf("%s run %s: %w", what, r.Name, err)
	}
	return nil
}

func readRun(row database.Scan) (r record.Run, err error) {
	var spec, result string
	err = row(&r.Name, &r.WorkflowID, &r.ExecutionID, &r.SpecDigest, &spec, inJSON{&r.Splits}, &r.Status, &result, at(&r.Created), at(&r.Finished))
	r.Spec, r.Result = raw(spec), raw(result)
	return r, err
}

// notFound replaces the error for a missing row by record.ErrNotFound.
func notFound(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return record.ErrNotFound
	}
	return err
}

// BeginAction records an action on a run before it is done, and returns the action on
// record under its id, which may have been asked for before and have an answer. Another
// action under the id is record.ErrConflict, and one on a forgotten run
// record.ErrForgotten. An absent At is the present.
func (s *Store) BeginAction(ctx context.Context, a record.Action) (record.Action, error) {
	input, err := encode("input", a.Input)
	if err != nil {
		return record.Action{}, fmt.Errorf("begin action %s: %w", a.ID, err)
	}
	a.By, a.Reason = database.ValidText(a.By), database.ValidText(a.Reason)
	args := []any{a.ID, a.Run, string(a.Name), a.By, a.Reason, input, database.Nanos(orNow(a.At))}
	var stored record.Action
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) (err error) {
		if err := refuseRemoved(t, a.Run); err != nil {
			return err
		}
		stored, _, err = database.InsertOrFind(t, insertAction, args, func() (record.Action, error) {
			return database.One(t.Ctx, t, readAction, selectAction+` WHERE id = $1`, a.ID)
		})
		if err == nil && !stored.Same(a) {
			err = fmt.Errorf("%w: %s of run %s by %s is on record under its id", record.ErrConflict, stored.Name, stored.Run, stored.By)
		}
		return err
	})
	if err != nil {
		return record.Action{}, fmt.Errorf("begin action %s (%s of run %s): %w", a.ID, a.Name, a.Run, err)
	}
	return stored, nil
}

// EndAction records the answer to an action. Only the first answer counts.
func (s *Store) EndAction(ctx context.Context, id string, outcome record.ActionOutcome, r record.ActionResult) error {
	result, err := encode("result", r)
	if err != nil {
		return fmt.Errorf("end action %s: %w", id, err)
	}
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		_, err := t.Exec(endAction, id, string(outcome), result)
		return err
	})
	if err != nil {
		return fmt.Errorf("end action %s: %w", id, err)
	}
	return nil
}

// Actions returns the newest actions on a run, at most most of them, the newest first. It
// is no error if there are none.
func (s *Store) Actions(ctx context.Context, run string, most int) ([]record.Action, error) {
	all, err := database.List(ctx, s.db.Read(), readAction, selectAction+` WHERE run = $1 ORDER BY at DESC, id LIMIT $2`, run, most)
	if err != nil {
		return nil, fmt.Errorf("list actions on run %s: %w", run, err)
	}
	return all, nil
}

// Action returns the action of that id, or record.ErrNotFound.
func (s *Store) Action(ctx context.Context, id string) (record.Action, error) {
	a, err := database.One(ctx, s.db.Read(), readAction, selectAction+` WHERE id = $1`, id)
	if err != nil {
		return record.Action{}, fmt.Errorf("read action %s: %w", id, notFound(err))
	}
	return a, nil
}

func readAction(row database.Scan) (a record.Action, err error) {
	err = row(&a.ID, &a.Run, &a.Name, &a.By, &a.Reason, inJSON{&a.Input}, at(&a.At), &a.Outcome, inJSON{&a.Result})
	return a, err
}

const (
	insertStep  = `INSERT INTO steps (run, policy, step, batch, metrics, at) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`
	selectSteps = `SELECT run, policy, step, batch, metrics, at FROM steps WHERE run = $1 AND policy = $2`
)

// PutStep records a finished step. Recording it again changes nothing; other values,
// except for At, return record.ErrConflict. A forgotten run is record.ErrForgotten. If At
// is zero, it is set to the current time.
func (s *Store) PutStep(ctx context.Context, r record.Step) error {
	metrics, err := encode("metrics", r.Metrics)
	if err != nil {
		return fmt.Errorf("put step %d of %s/%s: %w", r.Step, r.Run, r.Policy, err)
	}
	args := []any{r.Run, r.Policy, r.Step, r.Batch, metrics, database.Nanos(orNow(r.At))}
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if err := refuseRemoved(t, r.Run); err != nil {
			return err
		}
		old, _, err := database.InsertOrFind(t, insertStep, args, func() ([2]string, error) {
			return database.One(t.Ctx, t, func(row database.Scan) (v [2]string, err error) {
				err = row(&v[0], &v[1])
				return v, err
			}, `SELECT batch, metrics FROM steps WHERE run = $1 AND policy = $2 AND step = $3`, r.Run, r.Policy, r.Step)
		})
		if err == nil && old != [2]string{database.ValidText(r.Batch), database.ValidText(metrics)} {
			err = fmt.Errorf("%w: it is on record with other values", record.ErrConflict)
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

// LastStep returns the newest finished step of a policy, or record.ErrNotFound.
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
// returns the choice on record. A forgotten run is record.ErrForgotten. If At is zero, it
// is set to the current time.
func (s *Store) PutChoice(ctx context.Context, c record.Choice) (record.Choice, error) {
	c.At = orNow(c.At)
	text, err := encode("choice", c)
	if err != nil {
		return c, fmt.Errorf("put choice of %s/%s step %d: %w", c.Run, c.Policy, c.Step, err)
	}
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) (err error) {
		if err := refuseRemoved(t, c.Run); err != nil {
			return err
		}
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

// Choice returns which tasks a step attempts. It returns record.ErrNotFound if no
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
	for _, kind := range []record.Kind{record.Train, record.Reserve} {
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

const (
	insertBatch = `INSERT INTO batches (run, policy, step, digest, sequences, tokens, trained, metrics, begun, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING`
	selectBatches = `SELECT run, policy, step, digest, sequences, tokens, trained, metrics, begun, at FROM batches WHERE run = $1 AND policy = $2`
	selectBatch   = selectBatches + ` AND step = $3`
)

// PutBatch stores b unless the step has a batch. It returns the step's batch and whether
// this call stored it. A forgotten run is record.ErrForgotten. If At is zero, it is set to
// the current time.
func (s *Store) PutBatch(ctx context.Context, b record.Batch) (record.Batch, bool, error) {
	metrics, err := encode("metrics", b.Metrics)
	if err != nil {
		return record.Batch{}, false, fmt.Errorf("put batch of %s/%s step %d: %w", b.Run, b.Policy, b.Step, err)
	}
	args := []any{b.Run, b.Policy, b.Step, b.Digest, b.Sequences, b.Tokens, b.Trained, metrics, database.Nanos(b.Begun), database.Nanos(orNow(b.At))}
	var stored record.Batch
	var created bool
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) (err error) {
		if err := refuseRemoved(t, b.Run); err != nil {
			return err
		}
		stored, created, err = database.InsertOrFind(t, insertBatch, args, func() (record.Batch, error) {
			return database.One(t.Ctx, t, readBatch, selectBatch, b.Run, b.Policy, b.Step)
		})
		return err
	})
	if err != nil {
		return record.Batch{}, false, fmt.Errorf("put batch of %s/%s step %d: %w", b.Run, b.Policy, b.Step, err)
	}
	return stored, created, nil
}

// Batch returns the batch of a step, or record.ErrNotFound.
func (s *Store) Batch(ctx context.Context, run, policy string, step int) (record.Batch, error) {
	b, err := database.One(ctx, s.db.Read(), readBatch, selectBatch, run, policy, step)
	if err != nil {
		return record.Batch{}, fmt.Errorf("read batch of %s/%s step %d: %w", run, policy, step, notFound(err))
	}
	return b, nil
}

// Batches returns the batches of a policy by step. It is no error if there are none.
func (s *Store) Batches(ctx context.Context, run, policy string) ([]record.Batch, error) {
	all, err := database.List(ctx, s.db.Read(), readBatch, selectBatches+` ORDER BY step`, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list batches of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

func readBatch(row database.Scan) (b record.Batch, err error) {
	err = row(&b.Run, &b.Policy, &b.Step, &b.Digest, &b.Sequences, &b.Tokens, &b.Trained, inJSON{&b.Metrics}, at(&b.Begun), at(&b.At))
	return b, err
}

const (
	insertQuarantine = `INSERT INTO quarantines (run, policy, step, kind, task, place, reason, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING`
	// Quarantines of steps that have a batch are kept.
	undecided          = ` AND NOT EXISTS (SELECT 1 FROM batches b WHERE b.run = q.run AND b.policy = q.policy AND b.step = q.step)`
	uncountQuarantined = `UPDATE attempts SET outcome = 'infra_fault', error = 'made again: its task was quarantined, and the run retried' WHERE run = $1
AND outcome IN ('completed', 'agent_failed') AND EXISTS (SELECT 1 FROM quarantines q WHERE q.run = attempts.run AND q.policy = attempts.policy
AND q.step = attempts.step AND q.kind = attempts.kind AND q.task = attempts.task` + undecided + `)`
	deleteQuarantines = `DELETE FROM quarantines AS q WHERE q.run = $1` + undecided
	selectQuarantines = `SELECT run, policy, step, kind, task, place, reason, at FROM quarantines WHERE run = $1 AND policy = $2`
)

// PutQuarantine records that a step could not train on a task. Recording it again changes
// nothing; other values, except for At, return record.ErrConflict. A forgotten run is
// record.ErrForgotten. If At is zero, it is set to the current time.
func (s *Store) PutQuarantine(ctx context.Context, q record.Quarantine) error {
	args := []any{q.Run, q.Policy, q.Step, q.Kind, q.Task, q.Index, q.Reason, database.Nanos(orNow(q.At))}
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if err := refuseRemoved(t, q.Run); err != nil {
			return err
		}
		old, _, err := database.InsertOrFind(t, insertQuarantine, args, func() (record.Quarantine, error) {
			return database.One(t.Ctx, t, readQuarantine, selectQuarantines+` AND step = $3 AND kind = $4 AND task = $5`, q.Run, q.Policy, q.Step, q.Kind, q.Task)
		})
		if err == nil && (old.Index != q.Index || old.Reason != database.ValidText(q.Reason)) {
			err = fmt.Errorf("%w: it is on record with other values", record.ErrConflict)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("put quarantine of %s/%s-%d/%d: %w", q.Run, q.Kind, q.Step, q.Task, err)
	}
	return nil
}

// ForgetQuarantines removes a run's quarantines of tasks in steps that have no batch yet:
// the tasks are attempted again, and their attempts so far do not count.
func (s *Store) ForgetQuarantines(ctx context.Context, run string) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if _, err := t.Exec(uncountQuarantined, run); err != nil {
			return err
		}
		_, err := t.Exec(deleteQuarantines, run)
		return err
	})
	if err != nil {
		return fmt.Errorf("forget quarantines of %s: %w", run, err)
	}
	return nil
}

// Quarantines returns the quarantined tasks of a policy by step, those of the training
// stream before those of the reserve. It is no error if there are none.
func (s *Store) Quarantines(ctx context.Context, run, policy string) ([]record.Quarantine, error) {
	all, err := database.List(ctx, s.db.Read(), readQuarantine, selectQuarantines+` ORDER BY step, kind DESC, task`, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list quarantines of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

// LatestQuarantines returns the quarantined tasks of a policy's last steps, at most most
// of them, those of the latest steps first. It is no error if there are none.
func (s *Store) LatestQuarantines(ctx context.Context, run, policy string, most int) ([]record.Quarantine, error) {
	all, err := database.List(ctx, s.db.Read(), readQuarantine, selectQuarantines+` ORDER BY step DESC, kind, task DESC LIMIT $3`, run, policy, most)
	if err != nil {
		return nil, fmt.Errorf("list the latest quarantines of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

// QuarantinesOfStep returns the quarantined tasks of a step, those of the training stream
// before those of the reserve. It is no error if there are none.
func (s *Store) QuarantinesOfStep(ctx context.Context, run, policy string, step int) ([]record.Quarantine, error) {
	all, err := database.List(ctx, s.db.Read(), readQuarantine, selectQuarantines+` AND step = $3 ORDER BY kind DESC, task`, run, policy, step)
	if err != nil {
		return nil, fmt.Errorf("list quarantines of step %d of %s/%s: %w", step, run, policy, err)
	}
	return all, nil
}

func readQuarantine(row database.Scan) (q record.Quarantine, err error) {
	err = row(&q.Run, &q.Policy, &q.Step, &q.Kind, &q.Task, &q.Index, &q.Reason, at(&q.At))
	return q, err
}
