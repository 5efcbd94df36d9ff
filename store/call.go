package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/store/tokens"
)

const (
	ofRollout = ` WHERE c.run = $1 AND c.kind = $2 AND c.step = $3 AND c.task = $4 AND c.sample = $5`
	ofAttempt = ofRollout + ` AND c.attempt = $6`

	selectLink = `SELECT c.extent, c.chain FROM calls c` + ofAttempt + ` AND c.seq = $7`

	samplingAttempts = `SELECT DISTINCT c.attempt FROM calls c` + ofRollout + ` AND c.attempt < $6 AND c.replayed_from = 0 ORDER BY c.attempt`
)

// AppendCall records a call of the current attempt with its bodies. Recording an equal
// call again changes nothing. Another call under the same Seq, or under the same Policy,
// Key and Occurrence, returns record.ErrConflict. Calls are equal if they differ at most
// in Started, Duration, Sampling, Server, Divergence and PartlyRead; the store sets Recorded itself. A sealed
// or replaced attempt returns record.ErrFenced. A Parent that is not a recorded beginning
// of the prompt returns ErrChain.
func (s *Store) AppendCall(ctx context.Context, call *record.Exchange) error {
	if err := s.appendCall(ctx, *call); err != nil {
		return fmt.Errorf("append call %d of %s: %w", call.Seq, call.Address, err)
	}
	return nil
}

// appendCall reads the parent outside the transaction: recorded calls never change.
func (s *Store) appendCall(ctx context.Context, c record.Exchange) error {
	if err := checkCall(c.Call); err != nil {
		return err
	}
	parent, err := s.link(ctx, c.Call)
	if err != nil {
		return err
	}
	r, err := newCallRow(c.Call, parent)
	if err != nil {
		return err
	}
	bases, err := s.recent.bases(ctx, s.db.Read(), c.Call)
	if err != nil {
		return err
	}
	// The write may outlive the caller's context.
	request, response := append([]byte{}, c.Request...), append([]byte{}, c.Response...)
	x := pack(c.Address, c.Seq, request, response, bases)
	added := false
	err = s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) (err error) {
		if added, err = appendRows(t, &r, &x); err == nil && c.Served != nil {
			err = noteServed(t, c.Address, *c.Served)
		}
		return err
	})
	if err == nil {
		if added {
			s.count(c.Call)
		}
		s.recent.put(c.Address, &bodies{c.Seq, x.cost, request, response, r.link})
	}
	return err
}

// count counts a call that was added.
func (s *Store) count(c record.Call) {
	if c.ReplayedFrom != 0 {
		s.metrics.Replayed(len(c.Completion))
	} else {
		s.metrics.Sampled(cmp.Or(c.API, "chat"), c.Duration, len(c.Prompt), len(c.Completion))
	}
}

// appendRows writes a call and its bodies. Almost always the call is new, which takes one
// statement for each table: the key of the bodies' table refuses a second call with the
// same number, and counting the call shows whether the attempt is open.
func appendRows(t database.Tx, r *callRow, x *exchangeRow) (added bool, err error) {
	if t.ForUpdate != "" { // if it is empty, nobody else writes until the commit
		if err := openAttempt(t, x.address); err != nil {
			return false, err
		}
	}
	added, err = x.insert(t)
	if err != nil {
		return false, err
	}
	if added {
		if err := r.insert(t); err != nil {
			return false, err
		}
		return true, r.count(t)
	}
	if err := openAttempt(t, x.address); err != nil {
		return false, err
	}
	if err := r.same(t); err != nil {
		return false, err
	}
	return false, x.same(t)
}

// link returns the link to the parent of c, the zero link if it has no parent.
func (s *Store) link(ctx context.Context, c record.Call) (link, error) {
	if c.Parent < 0 {
		return link{}, nil
	}
	if b := s.recent.get(c.Address, c.Parent); b != nil && b.link.extent > 0 {
		return b.link, nil
	}
	parent, err := database.One(ctx, s.db.Read(), func(row database.Scan) (l link, err error) {
		err = row(&l.extent, &l.chain)
		return l, err
	}, selectLink, append(attemptKey(c.Address), c.Parent)...)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return link{}, fmt.Errorf("%w: call %d is not on record", ErrChain, c.Parent)
	case err != nil:
		return link{}, fmt.Errorf("read parent %d: %w", c.Parent, err)
	}
	return parent, nil
}

// Calls returns the calls of an attempt in order. It is no error if there are none.
func (s *Store) Calls(ctx context.Context, address record.Address) ([]record.Call, error) {
	calls, err := s.readCalls(ctx, selectCalls+ofAttempt+` ORDER BY c.seq`, attemptKey(address)...)
	if err != nil {
		return nil, fmt.Errorf("read calls of %s: %w", address, err)
	}
	return calls, nil
}

// CallsOfRollout returns the calls of all attempts at a rollout, attempt after
// attempt.
func (s *Store) CallsOfRollout(ctx context.Context, id record.RolloutID) ([]record.Call, error) {
	calls, err := s.readCalls(ctx, selectCalls+ofRollout+` ORDER BY c.attempt, c.seq`, rolloutKey(id)...)
	if err != nil {
		return nil, fmt.Errorf("read calls of %s: %w", id, err)
	}
	return calls, nil
}

func checkCall(c record.Call) error {
	switch {
	case c.Seq < 0 || c.Parent < -1 || c.Occurrence < 0 || c.ReplayedFrom < 0:
		return fmt.Errorf("seq %d, parent %d, occurrence %d, replayed from %d: out of range", c.Seq, c.Parent, c.Occurrence, c.ReplayedFrom)
	case c.ReplayedFrom >= c.Attempt && c.ReplayedFrom > 0:
		return fmt.Errorf("replayed from %d, which is not an earlier attempt", c.ReplayedFrom)
	case c.Parent >= c.Seq:
		return fmt.Errorf("%w: parent %d is not an earlier call", ErrChain, c.Parent)
	case len(c.Logprobs) != len(c.Completion):
		return fmt.Errorf("%d log-probabilities for %d tokens", len(c.Logprobs), len(c.Completion))
	case c.Untrained != nil && len(c.Untrained) != len(c.Completion):
		return fmt.Errorf("%d loss marks for %d tokens", len(c.Untrained), len(c.Completion))
	}
	if err := checkFinite("temperature", c.Temperature); err != nil {
		return err
	}
	return checkFinite("top_p", c.TopP)
}

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
const selectReplayed = `SELECT c.kind, c.step, c.task, c.sample, c.attempt, c.completion FROM calls c WHERE c.run = $1 AND c.replayed_from > 0
AND (SELECT a.policy FROM attempts a
WHERE a.run = c.run AND a.kind = c.kind AND a.step = c.step AND a.task = c.task AND a.sample = c.sample AND a.attempt = c.attempt) = $2`

// Divergences returns where the attempts of a run began to differ from what earlier
// attempts had recorded, by step, task, sample and attempt. It leaves out attempts that
// have replayed all of the earlier calls by now.
func (s *Store) Divergences(ctx context.Context, run string) ([]record.Divergence, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (record.Divergence, error) {
		d := record.Divergence{Address: addressIn(run)}
		err := row(&d.Kind, &d.Step, &d.Task, &d.Sample, &d.Attempt, &d.Seq, &d.Earlier, &d.EarlierSeq, &d.Difference)
		return d, err
	}, selectDivergences, run)
	if err != nil {
		return nil, fmt.Errorf("list divergences of run %s: %w", run, err)
	}
	// Here and not in SQL: for the order SQLite would go through all of the run's
	// calls by their key instead of the few that diverged.
	slices.SortFunc(all, func(a, b record.Divergence) int {
		return cmp.Or(compare(a.Address, b.Address), cmp.Compare(a.Seq, b.Seq))
	})
	return all, nil
}

// Replays returns how much of each attempt under a policy was replayed, by kind, step, task,
// sample and attempt, without those that replayed nothing. The calls of such an attempt may
// be of several policies. It is no error if there are none.
func (s *Store) Replays(ctx context.Context, run, policy string) ([]record.Replayed, error) {
	found := map[record.Address]record.Replayed{}
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
func compare(a, b record.Address) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Task, b.Task),
		cmp.Compare(a.Sample, b.Sample), cmp.Compare(a.Attempt, b.Attempt))
}

// trajectoryBatch is how many attempts one query reads; it decides only how
// many numbers a statement carries.
const trajectoryBatch = 128

// stepOf is the part that the addresses of one query share.
type stepOf struct {
	run  string
	kind record.Kind
	step int
}

// Trajectories returns the attempts at addresses with their calls and rewards, in the
// order of addresses. It makes three queries for every 128 attempts of a step. If an
// address has no attempt, it returns record.ErrNotFound.
func (s *Store) Trajectories(ctx context.Context, addresses []record.Address) ([]record.Trajectory, error) {
	found := make(map[record.Address]*record.Trajectory, len(addresses))
	for step, all := range bySteps(addresses) {
		for len(all) > 0 {
			n := min(len(all), trajectoryBatch)
			if err := s.collect(ctx, step, all[:n], found); err != nil {
				return nil, fmt.Errorf("read trajectories of %s/%s-%d: %w", step.run, step.kind, step.step, err)
			}
			all = all[n:]
		}
	}
	out := make([]record.Trajectory, len(addresses))
	for i, a := range addresses {
		t, ok := found[a]
		if !ok {
			return nil, fmt.Errorf("read trajectory %s: %w", a, record.ErrNotFound)
		}
		out[i] = *t
	}
	return out, nil
}

// bySteps groups addresses, each once.
func bySteps(addresses []record.Address) map[stepOf][]record.Address {
	out, seen := map[stepOf][]record.Address{}, map[record.Address]bool{}
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
func (s *Store) collect(ctx context.Context, step stepOf, addresses []record.Address, found map[record.Address]*record.Trajectory) error {
	wanted, args := wantedOf(step, addresses)
	attempts, err := database.List(ctx, s.db.Read(), readAttempt, wanted+`SELECT `+attemptColumns+` FROM wanted CROSS JOIN attempts a`+joinGrade+matching("a"), args...)
	if err != nil {
		return fmt.Errorf("attempts: %w", err)
	}
	for _, a := range attempts {
		found[a.Address] = &record.Trajectory{Attempt: a}
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
func wantedOf(step stepOf, addresses []record.Address) (string, []any) {
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
