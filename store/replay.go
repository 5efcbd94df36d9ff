package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/store/tokens"
	"github.com/fulgurite/fulgurite/trace"
)

// e is a call that an earlier attempt sampled, and n is the same call in the later
// attempt. With EXISTS instead of these subqueries, PostgreSQL may read the calls of all
// runs into a table to look n up.
const selectDivergences = `SELECT c.kind, c.step, c.task, c.sample, c.attempt, c.seq, c.diverged_from, c.diverged_seq, c.difference
FROM calls c WHERE c.run = $1 AND c.diverged_from > 0 AND (SELECT 1 FROM calls e
WHERE e.run = c.run AND e.kind = c.kind AND e.step = c.step AND e.task = c.task AND e.sample = c.sample AND e.attempt < c.attempt AND e.replayed_from = 0
AND (SELECT 1 FROM calls n
WHERE n.run = c.run AND n.kind = c.kind AND n.step = c.step AND n.task = c.task AND n.sample = c.sample AND n.attempt = c.attempt
AND n.policy = e.policy AND n.key = e.key AND n.occurrence = e.occurrence LIMIT 1) IS NULL LIMIT 1) IS NOT NULL`

// There is no ORDER BY, because with it SQLite would choose the index of all calls
// instead of the index of replayed calls.
const selectReplayed = `SELECT kind, step, task, sample, attempt, completion FROM calls WHERE run = $1 AND policy = $2 AND replayed_from > 0`

// Divergences returns where the attempts of a run began to differ from what earlier
// attempts had recorded, by step, task, sample and attempt. It leaves out attempts that
// have replayed all of the earlier calls by now.
func (s *Store) Divergences(ctx context.Context, run string) ([]trace.Divergence, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (trace.Divergence, error) {
		d := trace.Divergence{Address: addressIn(run)}
		err := row(&d.Kind, &d.Step, &d.Task, &d.Sample, &d.Attempt, &d.Seq, &d.Earlier, &d.EarlierSeq, &d.Difference)
		return d, err
	}, selectDivergences, run)
	if err != nil {
		return nil, fmt.Errorf("list divergences of run %s: %w", run, err)
	}
	// Here and not in SQL: for the order SQLite would go through all of the run's
	// calls by their key instead of the few that diverged.
	slices.SortFunc(all, func(a, b trace.Divergence) int {
		return cmp.Or(compare(a.Address, b.Address), cmp.Compare(a.Seq, b.Seq))
	})
	return all, nil
}

// Replays returns how much of each attempt was replayed, by kind, step, task, sample and
// attempt, without those that replayed nothing. It is no error if there are none.
func (s *Store) Replays(ctx context.Context, run, policy string) ([]record.Replayed, error) {
	found := map[trace.Address]record.Replayed{}
	_, err := database.List(ctx, s.db.Read(), func(row database.Scan) (struct{}, error) {
		a := addressIn(run)
		var completion []byte
		err := row(&a.Kind, &a.Step, &a.Task, &a.Sample, &a.Attempt, &completion)
		r := found[a]
		found[a] = record.Replayed{Address: a, Calls: r.Calls + 1, Tokens: r.Tokens + tokens.Count(completion)}
		return struct{}{}, err
	}, selectReplayed, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list replays of %s/%s: %w", run, policy, err)
	}
	return slices.SortedFunc(maps.Values(found), func(a, b record.Replayed) int { return compare(a.Address, b.Address) }), nil
}

// compare orders attempts of one run.
func compare(a, b trace.Address) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Task, b.Task),
		cmp.Compare(a.Sample, b.Sample), cmp.Compare(a.Attempt, b.Attempt))
}
