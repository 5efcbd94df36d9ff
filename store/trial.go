package store

import (
	"context"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/trace"
)

// Trials are read once for a whole run, however many attempts it has.
const (
	selectTrials = `SELECT a.kind, a.step, a.task, a.sample, a.attempt, a.task_id, a.outcome, a.failure, COALESCE(a.reward, g.value),
a.calls, a.tokens, a.begun FROM attempts a` + joinGrade + ` WHERE a.run = $1 AND a.policy = $2 ORDER BY a.kind, a.step, a.task, a.sample, a.attempt`

	// Attempts that were cut off are few, so that theirs are looked up in the
	// table given for %s, and nobody else's read.
	cutOff = ` FROM attempts a CROSS JOIN rollouts r CROSS JOIN %s x WHERE a.run = $1 AND a.policy = $2 AND a.outcome IN ('', 'infra_fault')
AND r.run = a.run AND r.kind = a.kind AND r.step = a.step AND r.task = a.task AND r.sample = a.sample AND r.attempt > a.attempt
AND x.run = a.run AND x.kind = a.kind AND x.step = a.step AND x.task = a.task AND x.sample = a.sample AND x.attempt = a.attempt
GROUP BY a.kind, a.step, a.task, a.sample, a.attempt`
	lastActivity = `SELECT a.kind, a.step, a.task, a.sample, a.attempt, MAX(%s)` + cutOff
)

// Trials returns what became of every attempt of a run, by kind, step, task,
// sample and attempt; none is no error.
func (s *Store) Trials(ctx context.Context, run, policy string) ([]record.Trial, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (record.Trial, error) {
		t := record.Trial{Address: addressIn(run)}
		err := row(&t.Kind, &t.Step, &t.Task, &t.Sample, &t.Attempt, &t.TaskID, &t.Outcome, &t.Failure, &t.Reward, &t.Calls, &t.Tokens, at(&t.Begun))
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

func addressIn(run string) trace.Address { return trace.Address{RolloutID: trace.RolloutID{Run: run}} }
