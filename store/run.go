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
	"github.com/fulgurite/fulgurite/trace"
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
WHERE run = $1 AND outcome = '' AND kind IN ('train', 'reserve', 'gate', 'test') AND attempt = (SELECT r.attempt FROM rollouts r
WHERE r.run = attempts.run AND r.kind = attempts.kind AND r.step = attempts.step AND r.task = attempts.task AND r.sample = attempts.sample)`

	insertAction = `INSERT INTO actions (id, run, name, person, reason, input, at, outcome, result) VALUES ($1, $2, $3, $4, $5, $6, $7, 'asked', '{}') ON CONFLICT DO NOTHING`
	selectAction = `SELECT id, run, name, person, reason, input, at, outcome, result FROM actions`
	endAction    = `UPDATE actions SET outcome = $2, result = $3 WHERE id = $1 AND outcome = 'asked'`
)

// CreateRun stores r unless there is a run with its name. It returns the run with that
// name and whether this call stored it. A refused run is replaced. The caller has to
// decide, by SpecDigest, whether an earlier run is the same training. An empty Status
// means record.Running, and a zero Created the current time.
func (s *Store) CreateRun(ctx context.Context, r record.Run) (record.Run, bool, error) {
	if err := trace.CheckRunName(r.Name); err != nil {
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
		stored, created, err = database.InsertOrFind(t, insertRun, args, func() (record.Run, error) {
			return database.One(t.Ctx, t, readRun, selectRun, r.Name)
		})
		return err
	})
	if err != nil {
		return record.Run{}, false, fmt.Errorf("create run %s: %w", r.Name, err)
	}
	return stored, created, nil
}

// Run returns the run of that name, or trace.ErrNotFound.
func (s *Store) Run(ctx context.Context, name string) (record.Run, error) {
	r, err := database.One(ctx, s.db.Read(), readRun, selectRun, name)
	if err != nil {
		return record.Run{}, fmt.Errorf("read run %q: %w", name, notFound(err))
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
// changes nothing but the time; another way returns trace.ErrConflict.
func (s *Store) FinishRun(ctx context.Context, name string, status record.Status, result []byte) error {
	if status == record.Running || status == "" {
		return fmt.Errorf("finish run %s: %q is not an end", name, status)
	}
	now, text := database.Nanos(time.Now()), database.ValidText(string(result))
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		n, err := t.Exec(finishRun, name, status, text, now)
		if err == nil && n == 1 {
			_, err = t.Exec(endAttempts, name, fmt.Sprintf("the run ended: it is %s", status), now)
		}
		if err != nil || n == 1 {
			return err
		}
		r, err := database.One(t.Ctx, t, readRun, selectRun, name)
		if err != nil {
			return notFound(err)
		}
		if r.Status != status || string(r.Result) != text {
			return fmt.Errorf("%w: it %s already", trace.ErrConflict, r.Status)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("finish run %s: %w", name, err)
	}
	return nil
}

// ReopenRun marks a run that ended as running again. It is trace.ErrConflict if the run's
// execution, status or end differ from r by now.
func (s *Store) ReopenRun(ctx context.Context, r record.Run) error {
	return s.swap(ctx, "reopen", r, func(t database.Tx) (int64, error) {
		return t.Exec(reopenRun, r.Name, r.ExecutionID, r.Status, database.Nanos(r.Finished))
	})
}

// RebindRun records that a run that is under way continues in another execution, because
// the one that the row names is lost. It is trace.ErrConflict if the row differs from r by
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
		return fmt.Errorf("%w: it is %s", trace.ErrConflict, now.Status)
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

// notFound replaces the error for a missing row by trace.ErrNotFound.
func notFound(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return trace.ErrNotFound
	}
	return err
}

// BeginAction records an action on a run before it is done, and returns the action on
// record under its id, which may have been asked for before and have an answer. Another
// action under the id is trace.ErrConflict. An absent At is the present.
func (s *Store) BeginAction(ctx context.Context, a record.Action) (record.Action, error) {
	input, err := encode("input", a.Input)
	if err != nil {
		return record.Action{}, fmt.Errorf("begin action %s: %w", a.ID, err)
	}
	a.By, a.Reason = database.ValidText(a.By), database.ValidText(a.Reason)
	args := []any{a.ID, a.Run, string(a.Name), a.By, a.Reason, input, database.Nanos(orNow(a.At))}
	var stored record.Action
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) (err error) {
		stored, _, err = database.InsertOrFind(t, insertAction, args, func() (record.Action, error) {
			return database.One(t.Ctx, t, readAction, selectAction+` WHERE id = $1`, a.ID)
		})
		if err == nil && !stored.Same(a) {
			err = fmt.Errorf("%w: %s of run %s by %s is on record under its id", trace.ErrConflict, stored.Name, stored.Run, stored.By)
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

// Action returns the action of that id, or trace.ErrNotFound.
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
