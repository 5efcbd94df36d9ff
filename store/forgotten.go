package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

// missingRun returns the error for a run without a row: it says so if the run was
// forgotten.
func missingRun(ctx context.Context, q database.Querier, name string, err error) error {
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	f, failure := database.One(ctx, q, readForgotten, forgottenRun, name)
	switch {
	case errors.Is(failure, sql.ErrNoRows):
		return record.ErrNotFound
	case failure != nil:
		return failure
	}
	return fmt.Errorf("%w: %w", record.ErrNotFound, forgotten(f))
}

// forgotten returns the error that says when, by whom and why a run was forgotten.
func forgotten(f record.Forgotten) error {
	why := ""
	if f.Reason != "" {
		why = ": " + f.Reason
	}
	return fmt.Errorf("it was %w on %s by %s%s", record.ErrForgotten, readable.Time(f.Begun), f.By, why)
}

// refuseForgotten returns an error if the name of a run is that of one that was forgotten.
func refuseForgotten(t database.Tx, name string) error {
	f, err := database.One(t.Ctx, t, readForgotten, forgottenRun, name)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("a run with this name is no longer there: %w; choose another name", forgotten(f))
}

// refuseChanged returns an error if something was removed from a run, so that it can't go
// on. It can go on without conversations that it has not learned from.
func refuseChanged(t database.Tx, name string) error {
	all, err := database.List(t.Ctx, t, readForgotten, forgottenOfRun, name)
	if err != nil {
		return err
	}
	for _, f := range all {
		if steps, _ := record.ForgottenSteps([]record.Forgotten{f}); f.What != record.ForgottenUser || len(steps) > 0 {
			return changed(f)
		}
	}
	return nil
}

// changed returns the error that says why a run from which something was removed can't go
// on or be computed again. It wraps record.ErrForgotten.
func changed(f record.Forgotten) error {
	switch f.What {
	case record.ForgottenTask:
		return fmt.Errorf("its task %q: %w", f.Task, forgotten(f))
	case record.ForgottenUser:
		return fmt.Errorf("what one of its users said: %w", forgotten(f))
	case record.ForgottenRecords:
		return fmt.Errorf("the bodies of its calls: %w", forgotten(f))
	}
	return forgotten(f)
}

// refuseRemoved returns an error if the removal of a run has begun: rows that are written
// afterwards, by an activity that still runs, would never be removed. It also keeps the
// removal from beginning before the transaction ends, so call it before other rows are
// locked: FinishRun locks the run first, too.
func refuseRemoved(t database.Tx, run string) error {
	status, err := database.One(t.Ctx, t, database.Scalar[record.Status], selectStatus+t.ForShare, run)
	if err == nil && status != record.Forgetting {
		return nil
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	f, err := database.One(t.Ctx, t, readForgotten, forgottenRun, run)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("the run: %w", forgotten(f))
}

// A removal takes what an attempt left that began before it. Later attempts, which evaluate
// a version again, are no part of it.
const removedOfAttempt = selectForgotten + ` f WHERE f.run = $1 AND EXISTS (SELECT 1 FROM attempts a` + atAttempt + `
AND a.begun <= f.begun AND (f.what = 'records' OR f.what = 'task' AND f.task = a.task_id)) ORDER BY what, task LIMIT 1`

// removedTaskOfAttempt is the same without the removal of bodies, which keeps rewards.
const removedTaskOfAttempt = selectForgotten + ` f WHERE f.run = $1 AND f.what = 'task' AND EXISTS (SELECT 1 FROM attempts a` + atAttempt + `
AND a.begun <= f.begun AND f.task = a.task_id) ORDER BY what, task LIMIT 1`

// refuseLate returns an error if what an attempt left was removed, so that texts which are
// sent late don't bring it back. It locks the run: see refuseRemoved.
func refuseLate(t database.Tx, a record.Address) error {
	return refuseLateUnder(t, a, removedOfAttempt)
}

// refuseLateReward does the same for rewards, which stay when bodies are removed.
func refuseLateReward(t database.Tx, a record.Address) error {
	return refuseLateUnder(t, a, removedTaskOfAttempt)
}

func refuseLateUnder(t database.Tx, a record.Address, removed string) error {
	if err := refuseRemoved(t, a.Run); err != nil {
		return fenced(err)
	}
	f, err := database.One(t.Ctx, t, readForgotten, removed, attemptKey(a)...)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return fenced(changed(f))
}

// fenced makes record.ErrForgotten wrap record.ErrFenced, too, for writes about an attempt:
// whoever makes them doesn't repeat them then.
func fenced(err error) error {
	if errors.Is(err, record.ErrForgotten) {
		return fmt.Errorf("%w: %w", record.ErrFenced, err)
	}
	return err
}
