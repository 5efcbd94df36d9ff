// Package store is the record of runs: the runs themselves, the sampled tokens, the
// rewards, the versions made from them and the promoted version. It is the only place with
// SQL. Weights, batches and task snapshots are too large for it and are in package blob.
//
// A store is an SQLite file (one machine, the default) or a PostgreSQL database (fleets).
// Both give the same guarantees:
//
//   - An acknowledged write survives kill -9 of any process. Writes that end a piece of
//     work (a sealed attempt, a version, a promotion: all but calls, events and the
//     agent's own rewards) also survive loss of power, together with every write that the
//     same process had acknowledged before.
//   - Every write has a natural key. Writing the same thing again changes nothing and
//     succeeds. Writing another thing under the same key returns [record.ErrConflict].
//     Where two executors may have worked at the same time (runs, versions, batches), it
//     returns what is on record instead.
//   - An attempt is fenced by the next attempt at its rollout and by its seal: from the
//     moment that BeginAttempt or SealAttempt returns, no call, event or agent's reward
//     is added to the fenced attempt ([record.ErrFenced]).
//   - A pinned pointer is moved by hand only. A decision about a candidate either moved
//     the pointer or is on record as one that did not, never both.
//   - A call is stored as what it adds to its parent; its bodies ([record.Exchange]) are
//     stored separately from its tokens. So an attempt's storage grows linearly with its
//     new text, however many turns repeat it. Calls are read back complete, and bodies
//     exactly as they were written: each has a digest, and reading a damaged one returns
//     [ErrBodies].
//   - Reading tokens reads no body. Bodies are read one attempt at a time, and reading
//     those of one call reads no more than twice its own bytes.
//   - A call records when its commit began; if it was not sampled, which attempt's record
//     answered it; and where an attempt's requests began to differ from earlier ones.
//
// The store does not check the meaning of its rows: the writer has to make sure that a
// version's blobs exist and that a promotion is justified. If a context ends during a
// write, the write may or may not be on record; repeat it to find out.
//
// Text is kept as valid UTF-8 without NUL, which PostgreSQL requires; other bytes become
// U+FFFD. Requests and responses are kept byte by byte. Tokens are unsigned LEB128
// varints of their 32 bits, and log-probabilities are IEEE 754 single precision,
// little-endian: both are exact. Times are kept to the nanosecond and are read back in
// UTC.
package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/internal/metrics"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

// Store stores runs. It is safe for concurrent use, and many processes may use the same
// database at the same time. Make one with Open.
type Store struct {
	// Files, if not nil, holds the files of versions; a version that lacks one of its
	// files is not recorded. Set it before the first use.
	Files Files

	db       database.DB
	log      *zap.Logger
	recent   *recent
	metrics  *metrics.Metrics
	postgres bool                   // and not SQLite
	userKey  atomic.Pointer[string] // of HashUser; nil until it was read
}

// Open connects to the store at url: "postgres://…", "sqlite:///absolute/path", or the
// path of an SQLite file. The file and its directory are created if they do not exist.
// Open makes no tables; Migrate does. It refuses a store with another schema than this
// program's. A file that this process may not write is opened for reading. If log is nil,
// nothing is logged.
func Open(ctx context.Context, url string, log *zap.Logger) (*Store, error) {
	if log == nil {
		log = zap.NewNop()
	}
	db, err := database.Open(ctx, url, log)
	if err != nil {
		return nil, err
	}
	file, err := database.FilePath(url)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Store{db: db, log: log, recent: &recent{}, postgres: file == ""}, nil
}

// Measure counts in m what this process writes, each row once however often it is written.
// Call it before the first use.
func (s *Store) Measure(m *metrics.Metrics) { s.db, s.metrics = timedDB{s.db, m}, m }

// timedDB times the writes of a database.
type timedDB struct {
	database.DB
	metrics *metrics.Metrics
}

// Write implements database.DB.
func (t timedDB) Write(ctx context.Context, d database.Durability, op func(database.Tx) error) error {
	began := time.Now()
	err := t.DB.Write(ctx, d, op)
	t.metrics.Wrote(time.Since(began), err)
	return err
}

// Migrate makes the tables of an empty store. Several processes may do so at once.
func (s *Store) Migrate(ctx context.Context) error {
	applied, err := s.db.Migrate(ctx)
	if err != nil {
		return fmt.Errorf("migrate store: %w", err)
	}
	if applied > 0 {
		s.log.Info("store migrated", zap.Int("migrations", applied))
	}
	return nil
}

// Ready returns nil if the store has its tables.
func (s *Store) Ready(ctx context.Context) error {
	has, err := s.db.Schema(ctx)
	if err == nil && has == 0 {
		err = errors.New("it has no tables: `fulgurite-worker migrate` makes them")
	}
	return err
}

// ErrUnusable is in the chain of an error that lasts until a person changes something: a
// bad address, a schema of another release, a damaged file. Waiting does not help.
var ErrUnusable = database.ErrUnusable

// FilePath returns the path of the SQLite file at an address, "" for PostgreSQL.
func FilePath(address string) (string, error) { return database.FilePath(address) }

// Redacted returns an address for logs: without any password.
func Redacted(address string) string { return database.Redacted(address) }

// CheckFile reads a store's SQLite file and reports damage as ErrUnusable.
func CheckFile(ctx context.Context, path string) error { return database.CheckFile(ctx, path) }

// Close waits for running writes and disconnects from the database.
func (s *Store) Close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// orNow returns t, or the current time if t is zero.
func orNow(t time.Time) time.Time {
	if t.IsZero() {
		return time.Now().UTC()
	}
	return t
}

// encode returns v as JSON text; inJSON decodes it.
func encode(what string, v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", what, err)
	}
	return string(b), nil
}

// inJSON is a column with JSON text, which is decoded into the value that to points to.
type inJSON struct{ to any }

// Scan implements sql.Scanner.
func (c inJSON) Scan(src any) error {
	text, ok := src.(string)
	if !ok {
		return fmt.Errorf("%T is not a text column", src)
	}
	return json.Unmarshal([]byte(text), c.to)
}

// at returns t as the value of its column.
func at(t *time.Time) *database.Moment { return (*database.Moment)(t) }

// raw returns JSON text as a message, nil if it is empty.
func raw(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

const (
	insertIdentity = `INSERT INTO identity (one, id, mark) VALUES (1, $1, 0) ON CONFLICT DO NOTHING`
	selectIdentity = `SELECT id, mark FROM identity`
	updateMark     = `UPDATE identity SET mark = $1`
)

// identity is the row that says which store this is. It is zero before SetID.
type identity struct {
	id   string
	mark int64
}

func (s *Store) identity(ctx context.Context) (identity, error) {
	i, err := database.One(ctx, s.db.Read(), func(row database.Scan) (i identity, err error) {
		err = row(&i.id, &i.mark)
		return i, err
	}, selectIdentity)
	if errors.Is(err, sql.ErrNoRows) {
		return identity{}, nil
	}
	if err != nil {
		return i, fmt.Errorf("read the store's id: %w", err)
	}
	return i, nil
}

// ID returns the store's id, which the directory of its blobs has too. It is empty before
// SetID.
func (s *Store) ID(ctx context.Context) (string, error) {
	i, err := s.identity(ctx)
	return i.id, err
}

// SetID gives a store without an id this one. A store that has an id keeps it.
func (s *Store) SetID(ctx context.Context, id string) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		_, err := t.Exec(insertIdentity, id)
		return err
	})
	if err != nil {
		return fmt.Errorf("give the store an id: %w", err)
	}
	return nil
}

// Mark returns the number that SetMark has stored, at first 0.
func (s *Store) Mark(ctx context.Context) (int64, error) {
	i, err := s.identity(ctx)
	return i.mark, err
}

// SetMark stores a number in a store with an id. It survives a loss of power, and so do all
// writes before it.
func (s *Store) SetMark(ctx context.Context, mark int64) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		_, err := t.Exec(updateMark, mark)
		return err
	})
	if err != nil {
		return fmt.Errorf("store the mark %d: %w", mark, err)
	}
	return nil
}

const (
	timesOf     = ` WHERE x.run = $1 AND x.kind = $2 AND x.step = $3`
	timesOrder  = ` ORDER BY x.task, x.sample, x.attempt`
	selectTimes = `SELECT x.task, x.sample, x.attempt, x.outcome, x.begun, x.returned, x.ended, COALESCE(g.emitted, 0) FROM attempts x
LEFT JOIN rewards g ON g.run = x.run AND g.kind = x.kind AND g.step = x.step AND g.task = x.task AND g.sample = x.sample
AND g.attempt = x.attempt AND g.name = 'final' AND g.call_id = '' AND g.source = 'grader'` + timesOf + ` AND x.policy = $4` + timesOrder
	selectCallTimes = `SELECT x.task, x.sample, x.attempt, x.replayed_from, x.started, x.duration, x.queued, x.prefill, x.decode, x.shared FROM calls x` + timesOf + timesOrder + `, x.seq`
)

// Times returns when the attempts at a step, or at the evaluation of a version, began and
// ended, and what their calls took: by task, sample and attempt, those that were replaced
// too. It reads no text and no token. It is no error if there are none.
func (s *Store) Times(ctx context.Context, run, policy string, kind record.Kind, step int) ([]record.AttemptTimes, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (t record.AttemptTimes, err error) {
		t.Address = addressIn(run)
		t.Kind, t.Step = kind, step
		err = row(&t.Task, &t.Sample, &t.Attempt, &t.Outcome, at(&t.Begun), at(&t.Returned), at(&t.Ended), at(&t.Graded))
		return t, err
	}, selectTimes, run, kind, step, policy)
	if err != nil {
		return nil, fmt.Errorf("list times of %s/%s-%d: %w", run, kind, step, err)
	}
	places := make(map[record.Address]int, len(all))
	for i, t := range all {
		places[t.Address] = i
	}
	_, err = database.List(ctx, s.db.Read(), func(row database.Scan) (none struct{}, err error) {
		var c record.CallTimes
		a := addressIn(run)
		a.Kind, a.Step = kind, step
		var duration, queued, prefill, decode int64
		err = row(&a.Task, &a.Sample, &a.Attempt, &c.ReplayedFrom, at(&c.Started), &duration, &queued, &prefill, &decode, &c.Sampling.Shared)
		c.Duration = time.Duration(duration)
		c.Sampling.Queued, c.Sampling.Prefill, c.Sampling.Decode = time.Duration(queued), time.Duration(prefill), time.Duration(decode)
		if i, ok := places[a]; ok { // an attempt that began after the first query has none
			all[i].Calls = append(all[i].Calls, c)
		}
		return none, err
	}, selectCallTimes, run, kind, step) // of the attempts under the policy; calls may be of others
	if err != nil {
		return nil, fmt.Errorf("list times of calls of %s/%s-%d: %w", run, kind, step, err)
	}
	return all, nil
}

const (
	// refusalCodes is how many codes are kept for an attempt, in addition to
	// otherRefusals.
	refusalCodes = 32
	// otherRefusals is the code under which refusals with more codes are counted.
	otherRefusals = "other"
	// refusalText is how many bytes of a code's message are kept.
	refusalText = 2 << 10

	refusalsOf = ` WHERE f.run = $1 AND f.kind = $2 AND f.step = $3 AND f.task = $4 AND f.sample = $5 AND f.attempt = $6`
	// If it was uncertain whether a write was committed, it is repeated with the same
	// time.
	addRefusal = `INSERT INTO refusals (run, kind, step, task, sample, attempt, code, message, times, first_at, last_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (run, kind, step, task, sample, attempt, code) DO UPDATE
SET times = refusals.times + excluded.times, message = excluded.message, last_at = excluded.last_at WHERE refusals.last_at <> excluded.last_at`
	countOtherRefusals = `SELECT COUNT(*) FROM refusals f` + refusalsOf + ` AND f.code <> $7`
	selectRefusals     = `SELECT f.code, f.message, f.times, f.first_at, f.last_at FROM refusals f` + refusalsOf + ` ORDER BY f.first_at, f.code`

	countRefusals = `SELECT kind, step, task, sample, attempt, code, message, total, begun, last_at, attempts FROM (
SELECT f.kind, f.step, f.task, f.sample, f.attempt, f.code, f.message, f.last_at,
CAST(SUM(f.times) OVER (PARTITION BY f.code) AS BIGINT) AS total, MIN(f.first_at) OVER (PARTITION BY f.code) AS begun, COUNT(*) OVER (PARTITION BY f.code) AS attempts,
ROW_NUMBER() OVER (PARTITION BY f.code ORDER BY f.last_at DESC, f.kind, f.step, f.task, f.sample, f.attempt) AS place
FROM refusals f JOIN attempts a ON a.run = f.run AND a.kind = f.kind AND a.step = f.step AND a.task = f.task AND a.sample = f.sample AND a.attempt = f.attempt
WHERE f.run = $1 AND a.policy = $2) latest WHERE place = 1 ORDER BY total DESC, code`
)

// AddRefusal adds to the count of an attempt's refused calls with a code. A Count of zero
// means 1, a zero Last means the current time, and the store sets First itself. If the
// refusal that was added last is added once more, it is not counted again. The number of
// codes is limited: after the first 32 codes of an attempt, all others are counted as
// "other". Sealed and replaced attempts accept refusals as well; an attempt that never
// began returns record.ErrNotFound, and one of which something was removed
// record.ErrForgotten.
func (s *Store) AddRefusal(ctx context.Context, r record.Refusal) error {
	last := database.Nanos(orNow(r.Last))
	message := truncate(database.ValidText(r.Message), refusalText)
	code, added := r.Code, false
	err := s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error {
		if err := refuseLate(t, r.Address); err != nil {
			return err
		}
		if _, err := lockAttempt(t, r.Address); err != nil {
			return err
		}
		code = r.Code
		others, err := database.One(t.Ctx, t, database.Scalar[int], countOtherRefusals, append(attemptKey(r.Address), code)...)
		if err != nil {
			return err
		}
		if others >= refusalCodes {
			code = otherRefusals
		}
		n, err := t.Exec(addRefusal, append(attemptKey(r.Address), code, message, max(r.Count, 1), last, last)...)
		added = n > 0
		return err
	})
	if err != nil {
		return fmt.Errorf("add refusal %s of %s: %w", r.Code, r.Address, err)
	}
	if added {
		s.metrics.Refused(code, max(r.Count, 1))
	}
	return nil
}

// Refusals returns the refused calls of an attempt by code, in the order in which the
// codes first came. It is no error if there are none.
func (s *Store) Refusals(ctx context.Context, address record.Address) ([]record.Refusal, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (record.Refusal, error) {
		r := record.Refusal{Address: address}
		err := row(&r.Code, &r.Message, &r.Count, at(&r.First), at(&r.Last))
		return r, err
	}, selectRefusals, attemptKey(address)...)
	if err != nil {
		return nil, fmt.Errorf("read refusals of %s: %w", address, err)
	}
	return all, nil
}

// RefusalsOfRun returns the refused calls of all attempts of a policy by code, the most
// frequent first. It is no error if there are none.
func (s *Store) RefusalsOfRun(ctx context.Context, run, policy string) ([]record.RefusalCount, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (record.RefusalCount, error) {
		r := record.RefusalCount{Refusal: record.Refusal{Address: addressIn(run)}}
		err := row(&r.Kind, &r.Step, &r.Task, &r.Sample, &r.Attempt, &r.Code, &r.Message, &r.Count, at(&r.First), at(&r.Last), &r.Attempts)
		return r, err
	}, countRefusals, run, policy)
	if err != nil {
		return nil, fmt.Errorf("count refusals of %s/%s: %w", run, policy, err)
	}
	return all, nil
}
