package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

const (
	insertExperiment = `INSERT INTO experiments (run, policy, candidate, control, share, status, reason, result, begun, ended)
VALUES ($1, $2, $3, $4, $5, 'running', '', '', $6, 0)`
	selectExperiments = `SELECT run, policy, candidate, control, share, status, reason, result, begun, ended FROM experiments WHERE run = $1 AND policy = $2`
	experimentOf      = selectExperiments + ` AND candidate = $3`
	runningExperiment = selectExperiments + ` AND status = 'running'`
	putResult         = `UPDATE experiments SET result = $4 WHERE run = $1 AND policy = $2 AND candidate = $3 AND status = 'running'`
	// Of feedback that came at the same moment, the one with the lesser id counts.
	selectJudged = `SELECT c.number, c.person, c.candidate, f.reward, f.thumb, f.at FROM conversations c
JOIN feedback f ON f.run = c.run AND f.conversation = c.number AND (f.reward IS NOT NULL OR f.thumb <> '')
WHERE c.run = $1 AND c.policy = $2 AND c.experiment = $3 AND NOT EXISTS (SELECT 1 FROM feedback e
WHERE e.run = c.run AND e.conversation = c.number AND (e.reward IS NOT NULL OR e.thumb <> '') AND (e.at < f.at OR e.at = f.at AND e.id < f.id))
ORDER BY f.at, f.id`
	endExperiments = `UPDATE experiments SET status = 'ended', reason = $2, ended = $3 WHERE run = $1 AND status = 'running'`
	endExperiment  = `UPDATE experiments SET status = $4, reason = $5, result = CASE WHEN $6 = '' THEN result ELSE $6 END, ended = $7
WHERE run = $1 AND policy = $2 AND candidate = $3 AND status = 'running'`
)

// BeginExperiment puts an experiment on record, as running. If its candidate has one, it
// changes nothing and returns the one on record, which may have ended by now; if that one
// has another control or share, it returns record.ErrConflict. It also returns
// record.ErrConflict while another candidate's experiment is running. created says whether
// this call stored it. Status, Reason, Result and Ended are ignored. If Begun is zero, it is
// set to the current time.
func (s *Store) BeginExperiment(ctx context.Context, e record.Experiment) (stored record.Experiment, created bool, err error) {
	if err := e.Check(); err != nil {
		return record.Experiment{}, false, fmt.Errorf("begin experiment: %w", err)
	}
	args := []any{e.Run, e.Policy, e.Candidate, e.Control, e.Share, database.Nanos(orNow(e.Begun))}
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if err := refuseRemoved(t, e.Run); err != nil {
			return err
		}
		// The pointer's row is also the lock under which at most one experiment begins.
		if _, _, err := lockPointer(t, e.Run, e.Policy); err != nil {
			return err
		}
		stored, err = database.One(t.Ctx, t, readExperiment, experimentOf, e.Run, e.Policy, e.Candidate)
		if created = errors.Is(err, sql.ErrNoRows); !created {
			if err == nil && (stored.Control != e.Control || stored.Share != e.Share) {
				err = fmt.Errorf("%w: it began with control %d and share %g", record.ErrConflict, stored.Control, stored.Share)
			}
			return err
		}
		other, err := database.One(t.Ctx, t, readExperiment, runningExperiment, e.Run, e.Policy)
		if err == nil {
			return fmt.Errorf("%w: the experiment with version %d is running", record.ErrConflict, other.Candidate)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if _, err := t.Exec(insertExperiment, args...); err != nil {
			return err
		}
		stored, err = database.One(t.Ctx, t, readExperiment, experimentOf, e.Run, e.Policy, e.Candidate)
		return err
	})
	if err != nil {
		return record.Experiment{}, false, fmt.Errorf("begin experiment with version %d of %s/%s: %w", e.Candidate, e.Run, e.Policy, err)
	}
	return stored, created, nil
}

// RunningExperiment returns the experiment of a policy that is running, or
// record.ErrNotFound.
func (s *Store) RunningExperiment(ctx context.Context, run, policy string) (record.Experiment, error) {
	e, err := database.One(ctx, s.db.Read(), readExperiment, runningExperiment, run, policy)
	if err != nil {
		return record.Experiment{}, fmt.Errorf("read the running experiment of %s/%s: %w", run, policy, notFound(err))
	}
	return e, nil
}

// Experiments returns all experiments of a policy, in the order in which they began. It is
// no error if there are none.
func (s *Store) Experiments(ctx context.Context, run, policy string) ([]record.Experiment, error) {
	all, err := database.List(ctx, s.db.Read(), readExperiment, selectExperiments+` ORDER BY begun, candidate`, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list experiments of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

// PutExperimentResult records what the last look at a running experiment showed, in place of
// what the one before did. If the experiment has ended, it returns record.ErrConflict; if
// there is none, record.ErrNotFound.
func (s *Store) PutExperimentResult(ctx context.Context, run, policy string, candidate int, result json.RawMessage) error {
	err := s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error { // the next look repeats it
		n, err := t.Exec(putResult, run, policy, candidate, string(result))
		if err != nil || n == 1 {
			return err
		}
		old, err := database.One(t.Ctx, t, readExperiment, experimentOf, run, policy, candidate)
		if err != nil {
			return notFound(err)
		}
		return fmt.Errorf("%w: it is %s", record.ErrConflict, old.Status)
	})
	if err != nil {
		return fmt.Errorf("put the result of the experiment with version %d of %s/%s: %w", candidate, run, policy, err)
	}
	return nil
}

// EndExperiment ends a running experiment with e's Status, Reason and Result. If Result is
// empty, that of the last look stays. If the experiment has ended with the same status, it
// changes nothing; with another one, it returns record.ErrConflict. If there is none, it
// returns record.ErrNotFound. If Ended is zero, it is set to the current time.
func (s *Store) EndExperiment(ctx context.Context, e record.Experiment) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		switch e.Status {
		case record.ExperimentPromoted, record.ExperimentWithdrawn, record.ExperimentEnded:
		default:
			return fmt.Errorf("status: %q: want promoted, withdrawn or ended", e.Status)
		}
		n, err := t.Exec(endExperiment, e.Run, e.Policy, e.Candidate, string(e.Status), e.Reason, string(e.Result), database.Nanos(orNow(e.Ended)))
		if err != nil || n == 1 {
			return err
		}
		old, err := database.One(t.Ctx, t, readExperiment, experimentOf, e.Run, e.Policy, e.Candidate)
		if err != nil {
			return notFound(err)
		}
		if old.Status != e.Status {
			return fmt.Errorf("%w: it is %s", record.ErrConflict, old.Status)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("end experiment with version %d of %s/%s: %w", e.Candidate, e.Run, e.Policy, err)
	}
	return nil
}

func readExperiment(row database.Scan) (record.Experiment, error) {
	var e record.Experiment
	var result string
	err := row(&e.Run, &e.Policy, &e.Candidate, &e.Control, &e.Share, &e.Status, &e.Reason, &result, at(&e.Begun), at(&e.Ended))
	e.Result = raw(result)
	return e, err
}

// JudgedConversations returns the conversations of the experiment with a candidate that were
// given a value, with the first value of each, in the order in which these came.
func (s *Store) JudgedConversations(ctx context.Context, run, policy string, candidate int) ([]record.JudgedConversation, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (j record.JudgedConversation, err error) {
		var f record.Feedback
		err = row(&j.Number, &j.User, (*database.Flag)(&j.Candidate), &f.Reward, &f.Thumb, at(&j.At))
		j.Value, _ = f.Value()
		return j, err
	}, selectJudged, run, policy, candidate)
	if err != nil {
		return nil, fmt.Errorf("list what was judged of the experiment with version %d of %s/%s: %w", candidate, run, policy, err)
	}
	return all, nil
}
