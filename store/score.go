package store

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/trace"
)

// An attempt that is under way, or ended by a fault of ours, has no say, even if
// it is the latest: a worker that everybody thought dead may begin one when the
// rollout has long ended.
const selectScores = `SELECT a.task, a.sample, a.attempt, COALESCE(a.reward, g.value) FROM attempts a` + joinGrade + `
WHERE a.run = $1 AND a.kind = $2 AND a.step = $3 AND a.policy = $4 AND a.outcome IN ('completed', 'agent_failed')
AND COALESCE(a.reward, g.value) IS NOT NULL ORDER BY a.task, a.sample, a.attempt`

// Scores returns the rewards of a step by task and sample: of each sample the
// last sealed attempt's, by whoever graded it. Samples without reward are left
// out; none is no error.
func (s *Store) Scores(ctx context.Context, run, policy string, kind trace.Kind, step int) ([]record.Score, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (r record.Score, err error) {
		err = row(&r.Task, &r.Sample, &r.Attempt, &r.Reward)
		return r, err
	}, selectScores, run, kind, step, policy)
	if err != nil {
		return nil, fmt.Errorf("read scores of %s/%s-%d: %w", run, kind, step, err)
	}
	out := all[:0]
	for _, r := range all {
		if n := len(out); n > 0 && out[n-1].Task == r.Task && out[n-1].Sample == r.Sample {
			out[n-1] = r
		} else {
			out = append(out, r)
		}
	}
	return out, nil
}
