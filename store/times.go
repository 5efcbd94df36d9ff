package store

import (
	"context"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	timesOf     = ` WHERE x.run = $1 AND x.kind = $2 AND x.step = $3 AND x.policy = $4 ORDER BY x.task, x.sample, x.attempt`
	selectTimes = `SELECT x.task, x.sample, x.attempt, x.outcome, x.begun, x.returned, x.ended, COALESCE(g.emitted, 0) FROM attempts x
LEFT JOIN rewards g ON g.run = x.run AND g.kind = x.kind AND g.step = x.step AND g.task = x.task AND g.sample = x.sample
AND g.attempt = x.attempt AND g.name = 'final' AND g.call_id = '' AND g.source = 'grader'` + timesOf
	selectCallTimes = `SELECT x.task, x.sample, x.attempt, x.replayed_from, x.started, x.duration, x.queued, x.prefill, x.decode, x.shared FROM calls x` + timesOf + `, x.seq`
)

// Times returns when the attempts at a step, or at the evaluation of a version, began and
// ended, and what their calls took: by task, sample and attempt, those that were replaced
// too. It reads no text and no token. It is no error if there are none.
func (s *Store) Times(ctx context.Context, run, policy string, kind trace.Kind, step int) ([]record.AttemptTimes, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (t record.AttemptTimes, err error) {
		t.Address = addressIn(run)
		t.Kind, t.Step = kind, step
		err = row(&t.Task, &t.Sample, &t.Attempt, &t.Outcome, at(&t.Begun), at(&t.Returned), at(&t.Ended), at(&t.Graded))
		return t, err
	}, selectTimes, run, kind, step, policy)
	if err != nil {
		return nil, fmt.Errorf("list times of %s/%s-%d: %w", run, kind, step, err)
	}
	places := make(map[trace.Address]int, len(all))
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
	}, selectCallTimes, run, kind, step, policy)
	if err != nil {
		return nil, fmt.Errorf("list times of calls of %s/%s-%d: %w", run, kind, step, err)
	}
	return all, nil
}
