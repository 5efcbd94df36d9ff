package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/store/tokens"
	"github.com/fulgurite/fulgurite/trace"
)

// ErrChain is wrapped when a call does not continue the parent that it names.
var ErrChain = errors.New("call does not continue its parent")

// callRow is a call as its table stores it.
type callRow struct {
	call trace.Call // without Prompt, Completion, Logprobs, Untrained and Divergence

	prompt                          []byte // what follows the parent's prompt and completion
	completion, logprobs, untrained []byte
	link                            link
	divergence                      trace.Divergence // zero if it has no Earlier
}

// link describes the parent of a call: how many tokens its prompt and completion have
// together, and their digest.
type link struct {
	extent int
	chain  []byte
}

var calls = database.NewTable("calls c", append(addressed(func(r *callRow) *trace.Address { return &r.call.Address }),
	database.Col("seq", func(r *callRow) any { return &r.call.Seq }),
	database.Col("policy", func(r *callRow) any { return &r.call.Policy }),
	database.Col("id", func(r *callRow) any { return &r.call.ID }),
	database.Col("parent", func(r *callRow) any { return &r.call.Parent }),
	database.Col("agent", func(r *callRow) any { return &r.call.Agent }),
	database.Col("version", func(r *callRow) any { return &r.call.Version }),
	database.Col("weights", func(r *callRow) any { return &r.call.Weights }),
	database.Loose("server", func(r *callRow) any { return &r.call.Server }),
	database.Col("key", func(r *callRow) any { return &r.call.Key }),
	database.Col("occurrence", func(r *callRow) any { return &r.call.Occurrence }),
	database.Col("prompt", func(r *callRow) any { return &r.prompt }),
	database.Col("completion", func(r *callRow) any { return &r.completion }),
	database.Col("logprobs", func(r *callRow) any { return &r.logprobs }),
	database.Col("untrained", func(r *callRow) any { return &r.untrained }),
	database.Col("extent", func(r *callRow) any { return &r.link.extent }),
	database.Col("chain", func(r *callRow) any { return &r.link.chain }),
	database.Col("seed", func(r *callRow) any { return (*database.Unsigned)(&r.call.Seed) }),
	database.Col("temperature", func(r *callRow) any { return &r.call.Temperature }),
	database.Col("finish", func(r *callRow) any { return &r.call.Finish }),
	database.Col("parse_error", func(r *callRow) any { return &r.call.ParseError }),
	database.Loose("started", func(r *callRow) any { return (*database.Moment)(&r.call.Started) }),
	database.Loose("duration", func(r *callRow) any { return (*int64)(&r.call.Duration) }),
	database.Col("replayed_from", func(r *callRow) any { return &r.call.ReplayedFrom }),
	database.Col("exchange", func(r *callRow) any { return &r.call.RequestName }),
	database.Loose("recorded", func(r *callRow) any { return (*database.Moment)(&r.call.Recorded) }),
	database.Loose("diverged_from", func(r *callRow) any { return &r.divergence.Earlier }),
	database.Loose("diverged_seq", func(r *callRow) any { return &r.divergence.EarlierSeq }),
	database.Loose("difference", func(r *callRow) any { return &r.divergence.Difference }),
	database.Col("api", func(r *callRow) any { return &r.call.API }),
	database.Col("form", func(r *callRow) any { return (*database.Optional)(&r.call.Form) }),
	database.Col("drift", func(r *callRow) any { return (*database.Flag)(&r.call.Drift) }),
	database.Loose("partly_read", func(r *callRow) any { return (*database.Flag)(&r.call.PartlyRead) }),
	database.Loose("queued", func(r *callRow) any { return (*int64)(&r.call.Sampling.Queued) }),
	database.Loose("prefill", func(r *callRow) any { return (*int64)(&r.call.Sampling.Prefill) }),
	database.Loose("decode", func(r *callRow) any { return (*int64)(&r.call.Sampling.Decode) }),
	database.Loose("shared", func(r *callRow) any { return &r.call.Sampling.Shared }),
)...)

var (
	insertCall  = calls.Insert()
	selectCalls = calls.From()
	// countCall counts a call of an attempt that is current and open.
	countCall = `UPDATE attempts SET calls = calls + 1, tokens = tokens + $7
WHERE run = $1 AND kind = $2 AND step = $3 AND task = $4 AND sample = $5 AND attempt = $6 AND outcome = ''
AND attempt = (SELECT r.attempt FROM rollouts r WHERE r.run = $1 AND r.kind = $2 AND r.step = $3 AND r.task = $4 AND r.sample = $5)`
)

// markPartlyRead marks the calls of a request, one for each choice that it asked for.
const markPartlyRead = `UPDATE calls SET partly_read = 1
WHERE run = $1 AND kind = $2 AND step = $3 AND task = $4 AND sample = $5 AND attempt = $6 AND (exchange = $7 OR exchange LIKE $8)`

// newCallRow finds the part of c that its parent does not have; without a parent, link is
// zero. The row shares no memory with the caller, since the write may outlive the
// caller's context.
func newCallRow(c trace.Call, parent link) (callRow, error) {
	if parent.extent > len(c.Prompt) {
		return callRow{}, fmt.Errorf("%w: call %d has %d tokens, the prompt %d", ErrChain, c.Parent, parent.extent, len(c.Prompt))
	}
	d := tokens.NewChain().Add(c.Prompt[:parent.extent])
	if c.Parent >= 0 && !bytes.Equal(d.Digest(), parent.chain) {
		return callRow{}, fmt.Errorf("%w: the first %d tokens of the prompt are not those of call %d", ErrChain, parent.extent, c.Parent)
	}
	r := callRow{
		call: c, prompt: tokens.Encode(c.Prompt[parent.extent:]),
		completion: tokens.Encode(c.Completion), logprobs: tokens.EncodeLogprobs(c.Logprobs), untrained: tokens.EncodeMarks(c.Untrained),
		link: link{len(c.Prompt) + len(c.Completion), d.Add(c.Prompt[parent.extent:]).Add(c.Completion).Digest()},
	}
	r.call.Form = bytes.Clone(c.Form)
	r.call.Prompt, r.call.Completion, r.call.Logprobs, r.call.Untrained, r.call.Divergence = nil, nil, nil, nil, nil
	if c.Divergence != nil {
		r.divergence = *c.Divergence
	}
	return r, nil
}

// insert adds the row. No other call may have its number.
func (r *callRow) insert(t database.Tx) error {
	c := &r.call
	c.Recorded = time.Now()
	n, err := t.Exec(insertCall, calls.Fields(r)...)
	if err != nil || n == 1 {
		return err
	}
	if err := openAttempt(t, c.Address); err != nil {
		return err
	}
	return fmt.Errorf("%w: request %s, occurrence %d, is on record under another number", trace.ErrConflict, c.Key, c.Occurrence)
}

// count adds the call to the count of its attempt, which has to be open.
func (r *callRow) count(t database.Tx) error {
	n, err := t.Exec(countCall, append(attemptKey(r.call.Address), tokens.Count(r.completion))...)
	if err != nil || n == 1 {
		return err
	}
	if err := openAttempt(t, r.call.Address); err != nil {
		return err
	}
	return fmt.Errorf("count call %d: the attempt is open, but was not found", r.call.Seq)
}

// same returns an error if the call on record under the row's number differs from the
// row.
func (r *callRow) same(t database.Tx) error {
	old, err := database.One(t.Ctx, t, calls.Read, selectCalls+ofAttempt+` AND c.seq = $7`, append(attemptKey(r.call.Address), r.call.Seq)...)
	// The time, the duration and the server are loose columns: a gateway that lost the
	// answer to a write may have to sample again, which gives the same tokens at another
	// time or server.
	if err == nil && !calls.Same(r, &old) {
		err = fmt.Errorf("%w: call %d is another one", trace.ErrConflict, r.call.Seq)
	}
	return err
}

// readCalls reads the calls that a query selects, ordered by attempt and seq.
func (s *Store) readCalls(ctx context.Context, query string, args ...any) ([]trace.Call, error) {
	rows, err := database.List(ctx, s.db.Read(), calls.Read, query, args...)
	if err != nil {
		return nil, err
	}
	return unchain(rows)
}

// unchain restores each call's full prompt. Rows must be ordered by attempt and seq, so
// that parents precede their children. Calls that continue each other share one array,
// since a parent's tokens are the beginning of its child's prompt.
func unchain(rows []callRow) ([]trace.Call, error) {
	parents, err := parentsOf(rows)
	if err != nil {
		return nil, err
	}
	// room is how many tokens the array of a call needs: the length of the longest call
	// among its first child, that child's first child and so on. The first child writes
	// its tokens directly behind its parent's.
	room, firstChild := make([]int, len(rows)), make([]int, len(rows))
	for i := len(rows) - 1; i >= 0; i-- {
		room[i] = max(room[i], rows[i].link.extent)
		if p := parents[i]; p >= 0 {
			room[p], firstChild[p] = room[i], i
		}
	}
	out := make([]trace.Call, len(rows))
	arrays := make([][]int32, len(rows)) // prompt and completion
	for i, r := range rows {
		c, p := r.call, parents[i]
		var before []int32
		switch {
		case p >= 0 && firstChild[p] == i:
			before = arrays[p]
		case p >= 0:
			before = append(make([]int32, 0, room[i]), arrays[p]...)
		default:
			before = make([]int32, 0, room[i])
		}
		if arrays[i], err = r.tokens(&c, before); err != nil {
			return nil, fmt.Errorf("decode call %d of %s: %w", c.Seq, c.Address, err)
		}
		if r.divergence.Earlier > 0 {
			d := r.divergence
			d.Address, d.Seq = c.Address, c.Seq
			c.Divergence = &d
		}
		out[i] = c
	}
	return out, nil
}

// parentsOf returns the index of each row's parent, -1 if there is none.
func parentsOf(rows []callRow) ([]int, error) {
	parents := make([]int, len(rows))
	at := map[int]int{} // seq to index, in the attempt at hand
	for i, r := range rows {
		c := r.call
		if i > 0 && c.Address != rows[i-1].call.Address {
			clear(at)
		}
		at[c.Seq], parents[i] = i, -1
		if c.Parent >= 0 {
			p, ok := at[c.Parent]
			if !ok {
				return nil, fmt.Errorf("%w: call %d of %s has lost call %d", ErrChain, c.Seq, c.Address, c.Parent)
			}
			parents[i] = p
		}
	}
	return parents, nil
}

// tokens decodes the row's own tokens, appends them to the tokens before, and returns all
// of them.
func (r *callRow) tokens(c *trace.Call, before []int32) (all []int32, err error) {
	if all, err = tokens.Decode(before, r.prompt); err != nil {
		return nil, err
	}
	n := len(all)
	if all, err = tokens.Decode(all, r.completion); err != nil {
		return nil, err
	}
	if c.Prompt, c.Completion = nil, all[n:len(all):len(all)]; n > 0 {
		c.Prompt = all[:n:n]
	}
	c.Logprobs, err = tokens.DecodeLogprobs(r.logprobs)
	c.Untrained = tokens.DecodeMarks(r.untrained)
	return all, err
}
