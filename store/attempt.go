package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

// errorLimit is how many bytes of an attempt's error are kept.
const errorLimit = 64 << 10

const (
	atRollout = ` WHERE a.run = $1 AND a.kind = $2 AND a.step = $3 AND a.task = $4 AND a.sample = $5`
	atAttempt = atRollout + ` AND a.attempt = $6`

	nextAttempt = `INSERT INTO rollouts (run, kind, step, task, sample, attempt) VALUES ($1, $2, $3, $4, $5, 1)
ON CONFLICT (run, kind, step, task, sample) DO UPDATE SET attempt = rollouts.attempt + 1 RETURNING attempt`
	insertAttempt = `INSERT INTO attempts (run, kind, step, task, sample, attempt, task_id, policy, version, terms, key_hash, outcome, result, error, calls, tokens, begun, ended)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, '', '', '', 0, 0, $12, 0)`
	selectState = `SELECT r.attempt, a.outcome FROM attempts a JOIN rollouts r
ON r.run = a.run AND r.kind = a.kind AND r.step = a.step AND r.task = a.task AND r.sample = a.sample` + atAttempt
	selectEnd = `SELECT a.outcome, a.ended, r.attempt, COALESCE(n.begun, 0) FROM attempts a JOIN rollouts r
ON r.run = a.run AND r.kind = a.kind AND r.step = a.step AND r.task = a.task AND r.sample = a.sample
LEFT JOIN attempts n ON n.run = a.run AND n.kind = a.kind AND n.step = a.step AND n.task = a.task AND n.sample = a.sample AND n.attempt = a.attempt + 1` + atAttempt
	lastAttempt = `SELECT a.attempt, a.outcome, a.policy, a.version, a.terms FROM attempts a JOIN rollouts r
ON r.run = a.run AND r.kind = a.kind AND r.step = a.step AND r.task = a.task AND r.sample = a.sample AND r.attempt = a.attempt` + atRollout
	selectStatus = `SELECT status FROM runs WHERE name = $1`
	sealAttempt  = `UPDATE attempts SET outcome = $7, reward = $8, result = $9, error = $10, ended = $11, failure = $12, stdout = $13, stderr = $14, lines_before = $15, verdict = $16, returned = $17
WHERE run = $1 AND kind = $2 AND step = $3 AND task = $4 AND sample = $5 AND attempt = $6`

	// If a grader decides after the seal, its reward is only in the table rewards.
	attemptColumns = `a.run, a.kind, a.step, a.task, a.sample, a.attempt, a.task_id, a.terms, a.key_hash, a.outcome,
COALESCE(a.reward, g.value), a.result, a.failure, a.error, a.verdict, a.calls, a.tokens, a.begun, a.ended`
	joinGrade = ` LEFT JOIN rewards g ON g.run = a.run AND g.kind = a.kind AND g.step = a.step AND g.task = a.task
AND g.sample = a.sample AND g.attempt = a.attempt AND g.name = 'final' AND g.call_id = '' AND g.source = 'grader'`
	selectAttempts = `SELECT ` + attemptColumns + ` FROM attempts a` + joinGrade

	// Calls are numbered from 0.
	selectProgress = `SELECT a.attempt, a.failure, a.calls, COALESCE(c.key, ''), COALESCE(c.occurrence, 0) FROM attempts a
LEFT JOIN calls c ON c.run = a.run AND c.kind = a.kind AND c.step = a.step AND c.task = a.task AND c.sample = a.sample
AND c.attempt = a.attempt AND c.seq = a.calls - 1` + atRollout + ` ORDER BY a.attempt`
)

// BeginAttempt begins the next attempt at a rollout and fences all earlier
// ones. keyHash is the hex SHA-256 of the attempt's API key.
func (s *Store) BeginAttempt(ctx context.Context, id record.RolloutID, taskID string, terms record.Terms, keyHash string) (record.Address, error) {
	a, _, err := s.beginAttempt(ctx, id, taskID, terms, keyHash, false)
	return a, err
}

// BeginUnlessEnded is like BeginAttempt, but for a rollout that must not be attempted
// again once it has an outcome. If its latest attempt was sealed as completed or failed
// under the same policies, version and prompts, it returns that attempt and begins none. If
// the run has ended, it begins none either, and returns record.ErrFenced until the run is
// reopened.
func (s *Store) BeginUnlessEnded(ctx context.Context, id record.RolloutID, taskID string, terms record.Terms, keyHash string) (a record.Address, ended bool, err error) {
	return s.beginAttempt(ctx, id, taskID, terms, keyHash, true)
}

func (s *Store) beginAttempt(ctx context.Context, id record.RolloutID, taskID string, terms record.Terms, keyHash string, once bool) (record.Address, bool, error) {
	if err := checkRollout(id); err != nil {
		return record.Address{}, false, fmt.Errorf("begin attempt: %w", err)
	}
	text, err := encode("terms", terms)
	if err != nil {
		return record.Address{}, false, fmt.Errorf("begin attempt at %s: %w", id, err)
	}
	now := time.Now()
	var number int
	var ended bool
	err = s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error {
		if err := fenced(refuseRemoved(t, id.Run)); err != nil {
			return err
		}
		var err error
		if once {
			if number, ended, err = lastEnd(t, id, terms); err != nil || ended {
				return err
			}
			if err := underWay(t, id.Run); err != nil {
				return err
			}
		}
		if number, err = database.One(t.Ctx, t, database.Scalar[int], nextAttempt, rolloutKey(id)...); err != nil {
			return err
		}
		_, err = t.Exec(insertAttempt, append(rolloutKey(id), number, taskID, terms.Policy, terms.Version, text, keyHash, database.Nanos(now))...)
		return err
	})
	if err != nil {
		return record.Address{}, false, fmt.Errorf("begin attempt at %s: %w", id, err)
	}
	return record.Address{RolloutID: id, Attempt: number}, ended, nil
}

// underWay returns an error if a run on record has ended. It also keeps the run from
// ending before the transaction does, so that FinishRun seals every attempt that has
// begun.
func underWay(t database.Tx, run string) error {
	status, err := database.One(t.Ctx, t, database.Scalar[record.Status], selectStatus+t.ForShare, run)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err == nil && status != record.Running:
		return fmt.Errorf("%w: the run has ended: it is %s", record.ErrFenced, status)
	}
	return err
}

// lastEnd returns the number of the latest attempt, and whether it ended the rollout
// under these terms. Until the transaction ends, others cannot seal or begin attempts.
func lastEnd(t database.Tx, id record.RolloutID, terms record.Terms) (number int, ended bool, err error) {
	var outcome record.Outcome
	var policy string
	var version int
	var before record.Terms
	_, err = database.One(t.Ctx, t, func(row database.Scan) (none struct{}, err error) {
		return none, row(&number, &outcome, &policy, &version, inJSON{&before})
	}, lastAttempt+t.ForUpdate, rolloutKey(id)...)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	over := outcome == record.OutcomeCompleted || outcome == record.AgentFailed
	return number, over && policy == terms.Policy && version == terms.Version && before.Prompts == terms.Prompts && before.SamePolicies(terms), err
}

// Attempt returns the attempt at address, or record.ErrNotFound.
func (s *Store) Attempt(ctx context.Context, address record.Address) (record.Attempt, error) {
	a, err := database.One(ctx, s.db.Read(), readAttempt, selectAttempts+atAttempt, attemptKey(address)...)
	if err != nil {
		return record.Attempt{}, fmt.Errorf("read attempt %s: %w", address, notFound(err))
	}
	return a, nil
}

// AttemptEnd returns when the attempt at address was sealed, or when a later one replaced it.
// The time is zero while the attempt is open.
func (s *Store) AttemptEnd(ctx context.Context, address record.Address) (time.Time, error) {
	end, err := database.One(ctx, s.db.Read(), func(row database.Scan) (time.Time, error) {
		var outcome record.Outcome
		var latest int
		var sealed, replaced database.Moment
		err := row(&outcome, &sealed, &latest, &replaced)
		switch {
		case err != nil:
			return time.Time{}, err
		case outcome != record.OutcomeRunning:
			return time.Time(sealed), nil
		case latest != address.Attempt:
			return time.Time(replaced), nil
		}
		return time.Time{}, nil
	}, selectEnd, attemptKey(address)...)
	if err != nil {
		return end, fmt.Errorf("read the end of attempt %s: %w", address, notFound(err))
	}
	return end, nil
}

// CurrentAttempt returns the latest attempt at a rollout, or record.ErrNotFound.
func (s *Store) CurrentAttempt(ctx context.Context, id record.RolloutID) (record.Attempt, error) {
	a, err := database.One(ctx, s.db.Read(), readAttempt, selectAttempts+atRollout+` ORDER BY a.attempt DESC LIMIT 1`, rolloutKey(id)...)
	if err != nil {
		return record.Attempt{}, fmt.Errorf("read current attempt at %s: %w", id, notFound(err))
	}
	return a, nil
}

// Attempts returns all attempts of a step, fenced ones too, by task, sample and
// attempt.
func (s *Store) Attempts(ctx context.Context, run string, kind record.Kind, step int) ([]record.Attempt, error) {
	all, err := database.List(ctx, s.db.Read(), readAttempt,
		selectAttempts+` WHERE a.run = $1 AND a.kind = $2 AND a.step = $3 ORDER BY a.task, a.sample, a.attempt`, run, kind, step)
	if err != nil {
		return nil, fmt.Errorf("list attempts of %s/%s-%d: %w", run, kind, step, err)
	}
	return all, nil
}

// AttemptProgress returns how far each attempt at a rollout came, by its number. It is no
// error if there are none.
func (s *Store) AttemptProgress(ctx context.Context, id record.RolloutID) ([]record.Progress, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (p record.Progress, err error) {
		err = row(&p.Attempt, &p.Failure, &p.Calls, &p.Key, &p.Occurrence)
		return p, err
	}, selectProgress, rolloutKey(id)...)
	if err != nil {
		return nil, fmt.Errorf("read places of %s: %w", id, err)
	}
	return all, nil
}

// SealAttempt ends an attempt. It stores Outcome, Reward, Result, Verdict, Failure, Error,
// Output and Returned, and marks the calls of the requests in PartlyRead; Error and Verdict are cut to
// 64 KiB, each output to 8 KiB. The store itself sets the counts and the beginning; if Ended is zero, it is set to the current time. Once
// SealAttempt returns, the attempt and its calls survive loss of power. Sealing again
// with the same values, apart from the output, the verdict and Returned, changes nothing; other values return
// record.ErrConflict. An attempt that a later one replaced returns record.ErrFenced.
func (s *Store) SealAttempt(ctx context.Context, a record.Attempt) error {
	if err := checkSeal(a); err != nil {
		return fmt.Errorf("seal attempt %s: %w", a.Address, err)
	}
	a.Result, a.Failure, a.Error = database.ValidText(a.Result), database.ValidText(a.Failure), truncate(database.ValidText(a.Error), errorLimit)
	a.Verdict = truncate(database.ValidText(a.Verdict), errorLimit)
	a.Output.Stdout, a.Output.Stderr = truncate(database.ValidText(a.Output.Stdout), outputLimit), truncate(database.ValidText(a.Output.Stderr), outputLimit)
	ended := database.Nanos(orNow(a.Ended))
	sealed := false
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		st, err := lockAttempt(t, a.Address)
		if err != nil {
			return err
		}
		if sealed = st.outcome == record.OutcomeRunning; !sealed {
			return sameSeal(t, a)
		}
		if err := st.current(a.Address); err != nil {
			return err
		}
		for _, name := range a.PartlyRead {
			if _, err := t.Exec(markPartlyRead, append(attemptKey(a.Address), name, name+"/%")...); err != nil {
				return err
			}
		}
		_, err = t.Exec(sealAttempt, append(attemptKey(a.Address), a.Outcome, a.Reward, a.Result, a.Error, ended, a.Failure, a.Output.Stdout, a.Output.Stderr, a.Output.LinesBefore, a.Verdict, database.Nanos(a.Returned))...)
		return err
	})
	if err != nil {
		return fmt.Errorf("seal attempt %s: %w", a.Address, err)
	}
	if sealed {
		s.metrics.Rollout(string(a.Kind), string(a.Outcome))
		if a.Reward != nil {
			s.metrics.Reward(string(a.Kind), *a.Reward)
		}
	}
	return nil
}

// attemptState is the state of an attempt, locked until the transaction ends.
type attemptState struct {
	latest  int // the current attempt at the rollout
	outcome record.Outcome
}

// lockAttempt returns the attempt's state, and makes all other writes to its rollout
// wait.
func lockAttempt(t database.Tx, a record.Address) (attemptState, error) {
	st, err := database.One(t.Ctx, t, func(row database.Scan) (st attemptState, err error) {
		err = row(&st.latest, &st.outcome)
		return st, err
	}, selectState+t.ForUpdate, attemptKey(a)...)
	return st, notFound(err)
}

// openAttempt is like lockAttempt, but returns an error if the attempt is not open.
func openAttempt(t database.Tx, a record.Address) error {
	st, err := lockAttempt(t, a)
	if err != nil {
		return err
	}
	return st.open(a)
}

// current returns record.ErrFenced if a later attempt replaced this one.
func (s attemptState) current(a record.Address) error {
	if s.latest != a.Attempt {
		return fmt.Errorf("%w: attempt %d is current", record.ErrFenced, s.latest)
	}
	return nil
}

// open returns record.ErrFenced if the attempt was replaced or sealed.
func (s attemptState) open(a record.Address) error {
	if s.outcome != record.OutcomeRunning {
		return fmt.Errorf("%w: it is sealed as %s", record.ErrFenced, s.outcome)
	}
	return s.current(a)
}

func sameSeal(t database.Tx, a record.Attempt) error {
	// Without joinGrade: a grade that was added later is no part of the seal.
	old, err := database.One(t.Ctx, t, func(row database.Scan) (old record.Attempt, err error) {
		err = row(&old.Outcome, &old.Reward, &old.Result, &old.Failure, &old.Error)
		return old, err
	}, `SELECT a.outcome, a.reward, a.result, a.failure, a.error FROM attempts a`+atAttempt, attemptKey(a.Address)...)
	if err != nil {
		return err
	}

	if old.Outcome != a.Outcome || !sameNumber(old.Reward, a.Reward) || old.Result != a.Result || old.Failure != a.Failure || old.Error != a.Error {
		return fmt.Errorf("%w: it is sealed as %s with other values", record.ErrConflict, old.Outcome)
	}
	return nil
}

func readAttempt(row database.Scan) (a record.Attempt, err error) {
	err = row(&a.Run, &a.Kind, &a.Step, &a.Task, &a.Sample, &a.Attempt, &a.TaskID, inJSON{&a.Terms}, &a.KeyHash, &a.Outcome,
		&a.Reward, &a.Result, &a.Failure, &a.Error, &a.Verdict, &a.Calls, &a.Tokens, at(&a.Begun), at(&a.Ended))
	return a, err
}

func rolloutKey(id record.RolloutID) []any {
	return []any{id.Run, id.Kind, id.Step, id.Task, id.Sample}
}

func attemptKey(a record.Address) []any {
	return append(rolloutKey(a.RolloutID), a.Attempt)
}

// addressed returns the columns that name an attempt.
func addressed[Row any](address func(*Row) *record.Address) []database.Column[Row] {
	return []database.Column[Row]{
		database.Col("run", func(r *Row) any { return &address(r).Run }),
		database.Col("kind", func(r *Row) any { return &address(r).Kind }),
		database.Col("step", func(r *Row) any { return &address(r).Step }),
		database.Col("task", func(r *Row) any { return &address(r).Task }),
		database.Col("sample", func(r *Row) any { return &address(r).Sample }),
		database.Col("attempt", func(r *Row) any { return &address(r).Attempt }),
	}
}

// checkRollout returns an error if the id's text could not be parsed back into the id.
func checkRollout(id record.RolloutID) error {
	_, err := record.ParseAddress(record.Address{RolloutID: id, Attempt: 1}.String())
	return err
}

func checkSeal(a record.Attempt) error {
	switch a.Outcome {
	case record.OutcomeCompleted, record.AgentFailed:
	case record.InfraFault:
		if a.Reward != nil {
			return fmt.Errorf("outcome %s has reward %g", a.Outcome, *a.Reward)
		}
	default:
		return fmt.Errorf("outcome %q is not an end", a.Outcome)
	}
	if a.Reward != nil {
		return checkFinite("reward", *a.Reward)
	}
	return nil
}

func checkFinite(what string, v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Errorf("%s is %v", what, v)
	}
	return nil
}

// truncate shortens s to at most n bytes, between characters.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n])
}

// outputLimit is how many bytes of each output of an attempt are kept.
const outputLimit = 8 << 10

const selectOutput = `SELECT a.stdout, a.stderr, a.lines_before FROM attempts a`

// Output returns what an attempt printed, or record.ErrNotFound. It is empty before the
// seal. The methods that read attempts leave it out, since readers of many attempts do
// not need it.
func (s *Store) Output(ctx context.Context, address record.Address) (record.Output, error) {
	out, err := database.One(ctx, s.db.Read(), func(row database.Scan) (o record.Output, err error) {
		err = row(&o.Stdout, &o.Stderr, &o.LinesBefore)
		return o, err
	}, selectOutput+atAttempt, attemptKey(address)...)
	if err != nil {
		return record.Output{}, fmt.Errorf("read output of attempt %s: %w", address, notFound(err))
	}
	return out, nil
}
