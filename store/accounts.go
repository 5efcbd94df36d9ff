package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/trace"
)

// What accounts ask is asked once for a whole run, however many attempts it has.
const (
	selectTrials = `SELECT a.kind, a.step, a.task, a.sample, a.attempt, a.task_id, a.outcome, a.failure, COALESCE(a.reward, g.value),
a.calls, a.tokens, a.begun FROM attempts a` + joinGrade + ` WHERE a.run = $1 AND a.policy = $2 ORDER BY a.kind, a.step, a.task, a.sample, a.attempt`

	// Attempts that were cut off are few, so that theirs are looked up in the
	// table given for %s, and nobody else's read.
	cutOff = ` FROM attempts a CROSS JOIN rollouts r CROSS JOIN %s x WHERE a.run = $1 AND a.policy = $2 AND a.outcome IN ('', 'infra_fault')
AND r.run = a.run AND r.kind = a.kind AND r.step = a.step AND r.task = a.task AND r.sample = a.sample AND r.attempt > a.attempt
AND x.run = a.run AND x.kind = a.kind AND x.step = a.step AND x.task = a.task AND x.sample = a.sample AND x.attempt = a.attempt
GROUP BY a.kind, a.step, a.task, a.sample, a.attempt`
	lastSigns = `SELECT a.kind, a.step, a.task, a.sample, a.attempt, MAX(%s)` + cutOff

	// Without ORDER BY: in SQLite it would choose the index of all calls over the
	// one of those that were replayed.
	selectReplayed = `SELECT kind, step, task, sample, attempt, completion FROM calls WHERE run = $1 AND policy = $2 AND replayed_from > 0`

	selectBatches = `SELECT run, policy, step, digest, sequences, tokens, trained, metrics FROM batches WHERE run = $1 AND policy = $2 ORDER BY step`
)

// Trials returns what became of every attempt of a run, by kind, step, task,
// sample and attempt; none is no error.
func (s *Store) Trials(ctx context.Context, run, policy string) ([]record.Trial, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (record.Trial, error) {
		t := record.Trial{Address: addressIn(run)}
		var kind, outcome string
		var begun int64
		err := row(&kind, &t.Step, &t.Task, &t.Sample, &t.Attempt, &t.TaskID, &outcome, &t.Failure, &t.Reward, &t.Calls, &t.Tokens, &begun)
		t.Kind, t.Outcome, t.Begun = trace.Kind(kind), trace.Outcome(outcome), database.FromNanos(begun)
		return t, err
	}, selectTrials, run, policy)
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
	return all, nil
}

// progress is when each attempt that was cut off last recorded a call or an
// event.
func (s *Store) progress(ctx context.Context, run, policy string) (map[trace.Address]time.Time, error) {
	last := map[trace.Address]time.Time{}
	for table, at := range map[string]string{
		"calls":  `CASE WHEN x.recorded > 0 THEN x.recorded ELSE x.started + x.duration END`,
		"events": `x.at`,
	} {
		_, err := database.List(ctx, s.db.Read(), func(row database.Scan) (struct{}, error) {
			a := addressIn(run)
			var kind string
			var nanos int64
			err := row(&kind, &a.Step, &a.Task, &a.Sample, &a.Attempt, &nanos)
			a.Kind = trace.Kind(kind)
			if t := database.FromNanos(nanos); t.After(last[a]) {
				last[a] = t
			}
			return struct{}{}, err
		}, fmt.Sprintf(lastSigns, at, table), run, policy)
		if err != nil {
			return nil, fmt.Errorf("last %s: %w", table, err)
		}
	}
	return last, nil
}

// Replays returns how much of each attempt was replayed, by kind, step, task,
// sample and attempt, without those that replayed nothing; none is no error.
func (s *Store) Replays(ctx context.Context, run, policy string) ([]record.Replayed, error) {
	found := map[trace.Address]record.Replayed{}
	_, err := database.List(ctx, s.db.Read(), func(row database.Scan) (struct{}, error) {
		a := addressIn(run)
		var kind string
		var completion []byte
		err := row(&kind, &a.Step, &a.Task, &a.Sample, &a.Attempt, &completion)
		a.Kind = trace.Kind(kind)
		r := found[a]
		found[a] = record.Replayed{Address: a, Calls: r.Calls + 1, Tokens: r.Tokens + countTokens(completion)}
		return struct{}{}, err
	}, selectReplayed, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list replays of %s/%s: %w", run, policy, err)
	}
	return slices.SortedFunc(maps.Values(found), func(a, b record.Replayed) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Task, b.Task),
			cmp.Compare(a.Sample, b.Sample), cmp.Compare(a.Attempt, b.Attempt))
	}), nil
}

// Batches returns the batches of a policy by step; none is no error.
func (s *Store) Batches(ctx context.Context, run, policy string) ([]record.Batch, error) {
	all, err := database.List(ctx, s.db.Read(), readBatch, selectBatches, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list batches of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

func addressIn(run string) trace.Address { return trace.Address{RolloutID: trace.RolloutID{Run: run}} }
