package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/trace"
)

// trajectoryBatch is how many attempts one query reads; it decides only how
// many numbers a statement carries.
const trajectoryBatch = 128

// stepOf is the part that the addresses of one query share.
type stepOf struct {
	run  string
	kind trace.Kind
	step int
}

// Trajectories returns the attempts at addresses with their calls and rewards, in the
// order of addresses. It makes three queries for every 128 attempts of a step. If an
// address has no attempt, it returns trace.ErrNotFound.
func (s *Store) Trajectories(ctx context.Context, addresses []trace.Address) ([]trace.Trajectory, error) {
	found := make(map[trace.Address]*trace.Trajectory, len(addresses))
	for step, all := range bySteps(addresses) {
		for len(all) > 0 {
			n := min(len(all), trajectoryBatch)
			if err := s.collect(ctx, step, all[:n], found); err != nil {
				return nil, fmt.Errorf("read trajectories of %s/%s-%d: %w", step.run, step.kind, step.step, err)
			}
			all = all[n:]
		}
	}
	out := make([]trace.Trajectory, len(addresses))
	for i, a := range addresses {
		t, ok := found[a]
		if !ok {
			return nil, fmt.Errorf("read trajectory %s: %w", a, trace.ErrNotFound)
		}
		out[i] = *t
	}
	return out, nil
}

// bySteps groups addresses, each once.
func bySteps(addresses []trace.Address) map[stepOf][]trace.Address {
	out, seen := map[stepOf][]trace.Address{}, map[trace.Address]bool{}
	for _, a := range addresses {
		if !seen[a] {
			seen[a] = true
			key := stepOf{a.Run, a.Kind, a.Step}
			out[key] = append(out[key], a)
		}
	}
	return out
}

// collect adds the trajectories at addresses, all of one step, to found.
func (s *Store) collect(ctx context.Context, step stepOf, addresses []trace.Address, found map[trace.Address]*trace.Trajectory) error {
	wanted, args := wantedOf(step, addresses)
	attempts, err := database.List(ctx, s.db.Read(), readAttempt, wanted+`SELECT `+attemptColumns+` FROM wanted CROSS JOIN attempts a`+joinGrade+matching("a"), args...)
	if err != nil {
		return fmt.Errorf("attempts: %w", err)
	}
	for _, a := range attempts {
		found[a.Address] = &trace.Trajectory{Attempt: a}
	}
	history, err := s.readCalls(ctx, wanted+calls.From("wanted")+matching("c")+` ORDER BY c.task, c.sample, c.attempt, c.seq`, args...)
	if err != nil {
		return fmt.Errorf("calls: %w", err)
	}
	for _, c := range history {
		if t, ok := found[c.Address]; ok { // otherwise it began after the first query
			t.History = append(t.History, c)
		}
	}
	query := rewards.From("wanted") + matching("w") + ` ORDER BY w.task, w.sample, w.attempt, w.name`
	given, err := database.List(ctx, s.db.Read(), rewards.Read, wanted+query, args...)
	if err != nil {
		return fmt.Errorf("rewards: %w", err)
	}
	for _, r := range given {
		if t, ok := found[r.Address]; ok { // otherwise it began after the first query
			t.Rewards = append(t.Rewards, r)
		}
	}
	return nil
}

// wantedOf returns the beginning of a query that defines a table of the addresses. Its
// size is a power of two, filled up with rows that match nothing, so that databases see
// few different statements.
func wantedOf(step stepOf, addresses []trace.Address) (string, []any) {
	var b strings.Builder
	b.WriteString(`WITH wanted (task, sample, attempt) AS (VALUES (CAST($4 AS BIGINT), CAST($5 AS BIGINT), CAST($6 AS BIGINT))`)
	args := []any{step.run, step.kind, step.step}
	size := 1
	for size < len(addresses) {
		size *= 2
	}
	for i := range size {
		if i > 0 {
			fmt.Fprintf(&b, ", ($%d, $%d, $%d)", 3*i+4, 3*i+5, 3*i+6)
		}
		if i < len(addresses) {
			args = append(args, addresses[i].Task, addresses[i].Sample, addresses[i].Attempt)
		} else {
			args = append(args, -1, -1, -1)
		}
	}
	b.WriteString(") ")
	return b.String(), args
}

func matching(table string) string {
	return strings.ReplaceAll(` WHERE T.run = $1 AND T.kind = $2 AND T.step = $3
AND T.task = wanted.task AND T.sample = wanted.sample AND T.attempt = wanted.attempt`, "T.", table+".")
}
