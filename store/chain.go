package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/trace"
)

// ErrChain is wrapped when a call does not continue the parent that it names.
var ErrChain = errors.New("call does not continue its parent")

const (
	insertCall = `INSERT INTO calls (run, kind, step, task, sample, attempt, seq, policy, id, parent, agent, version, weights, key, occurrence,
prompt, completion, logprobs, untrained, extent, chain, seed, temperature, finish, parse_error, request, response, started, duration,
replayed_from, exchange, recorded, diverged_from, diverged_seq, difference, api, form, drift)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29,
$30, $31, $32, $33, $34, $35, $36, $37, $38)
ON CONFLICT DO NOTHING`
	selectCalls = `SELECT c.run, c.kind, c.step, c.task, c.sample, c.attempt, c.seq, c.policy, c.id, c.parent, c.agent, c.version, c.weights,
c.key, c.occurrence, c.prompt, c.completion, c.logprobs, c.untrained, c.seed, c.temperature, c.finish, c.parse_error,
c.request, c.response, c.started, c.duration, c.replayed_from, c.exchange, c.recorded, c.diverged_from, c.diverged_seq, c.difference,
c.api, c.form, c.drift FROM calls c`
	selectLink = `SELECT c.extent, c.chain FROM calls c` + ofAttempt + ` AND c.seq = $7`
	countCall  = `UPDATE attempts SET calls = calls + 1, tokens = tokens + $7
WHERE run = $1 AND kind = $2 AND step = $3 AND task = $4 AND sample = $5 AND attempt = $6`
)

// callRow is a call as its table has it.
type callRow struct {
	call trace.Call // without Prompt, Completion, Logprobs and Untrained

	prompt                          []byte // what follows the parent's prompt and completion
	completion, logprobs, untrained []byte
	link                            link
	sampled                         int
}

// link is what a child needs to know of its parent: how many tokens its prompt
// and completion have, and their digest.
type link struct {
	extent int
	chain  []byte
}

// callRow finds what c adds to its parent. It runs outside the transaction:
// a recorded parent never changes. The row shares no memory with the caller,
// since the write may outlive the caller's context.
func (s *Store) callRow(ctx context.Context, c trace.Call) (callRow, error) {
	r := callRow{
		call: c, completion: encodeTokens(c.Completion), logprobs: encodeFloats(c.Logprobs), untrained: encodeMarks(c.Untrained),
		sampled: len(c.Completion), link: link{extent: len(c.Prompt) + len(c.Completion)},
	}
	r.call.Agent, r.call.ParseError, r.call.Exchange = clean(c.Agent), clean(c.ParseError), clean(c.Exchange)
	r.call.Request, r.call.Response = append(json.RawMessage{}, c.Request...), append(json.RawMessage{}, c.Response...)
	r.call.Form = append(json.RawMessage{}, c.Form...)
	r.call.Prompt, r.call.Completion, r.call.Logprobs, r.call.Untrained = nil, nil, nil, nil
	var parent link
	if c.Parent >= 0 {
		var err error
		if parent, err = one(ctx, s.read(), readLink, selectLink, append(attemptKey(c.Address), c.Parent)...); errors.Is(err, sql.ErrNoRows) {
			return callRow{}, fmt.Errorf("%w: call %d is not on record", ErrChain, c.Parent)
		} else if err != nil {
			return callRow{}, fmt.Errorf("read parent %d: %w", c.Parent, err)
		}
	}
	if parent.extent > len(c.Prompt) {
		return callRow{}, fmt.Errorf("%w: call %d has %d tokens, the prompt %d", ErrChain, c.Parent, parent.extent, len(c.Prompt))
	}
	d := newChain().add(c.Prompt[:parent.extent])
	if c.Parent >= 0 && !bytes.Equal(d.digest(), parent.chain) {
		return callRow{}, fmt.Errorf("%w: the first %d tokens of the prompt are not those of call %d", ErrChain, parent.extent, c.Parent)
	}
	r.prompt = encodeTokens(c.Prompt[parent.extent:])
	r.link.chain = d.add(c.Prompt[parent.extent:]).add(c.Completion).digest()
	return r, nil
}

// insert adds the row to an attempt that is locked and open.
func (r *callRow) insert(t tx) error {
	c, key := r.call, attemptKey(r.call.Address)
	old, err := list(t.ctx, t, readCall, selectCalls+ofAttempt+` AND c.seq = $7`, append(key, c.Seq)...)
	if err != nil {
		return err
	}
	if len(old) > 0 {
		if !r.same(&old[0]) {
			return fmt.Errorf("%w: call %d is another one", trace.ErrConflict, c.Seq)
		}
		return nil
	}
	var d trace.Divergence
	if c.Divergence != nil {
		d = *c.Divergence
	}
	n, err := t.exec(insertCall, append(attemptKey(c.Address), c.Seq, c.Policy, c.ID, c.Parent, c.Agent, c.Version, c.Weights, c.Key, c.Occurrence,
		r.prompt, r.completion, r.logprobs, r.untrained, r.link.extent, r.link.chain, int64(c.Seed), c.Temperature, c.Finish, c.ParseError,
		[]byte(c.Request), []byte(c.Response), nanos(c.Started), int64(c.Duration),
		c.ReplayedFrom, c.Exchange, nanos(time.Now()), d.Earlier, d.EarlierSeq, d.Difference, c.API, []byte(c.Form), truth(c.Drift))...)
	if err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("%w: request %s, occurrence %d, is on record under another number", trace.ErrConflict, c.Key, c.Occurrence)
	}
	_, err = t.exec(countCall, append(attemptKey(c.Address), r.sampled)...)
	return err
}

// same leaves out when and how long: a gateway that lost the answer to
// a write may have to sample again, which gives the same tokens at another time.
func (r *callRow) same(o *callRow) bool {
	a, b := r.call, o.call
	return a.Seq == b.Seq && a.ID == b.ID && a.Parent == b.Parent && a.Agent == b.Agent && a.Policy == b.Policy && a.Version == b.Version &&
		a.Weights == b.Weights && a.Key == b.Key && a.Occurrence == b.Occurrence && a.Seed == b.Seed && a.Temperature == b.Temperature &&
		a.ReplayedFrom == b.ReplayedFrom && a.Exchange == b.Exchange && a.Finish == b.Finish && a.ParseError == b.ParseError &&
		a.API == b.API && a.Drift == b.Drift && bytes.Equal(a.Form, b.Form) && bytes.Equal(a.Request, b.Request) && bytes.Equal(a.Response, b.Response) &&
		bytes.Equal(r.prompt, o.prompt) && bytes.Equal(r.completion, o.completion) && bytes.Equal(r.logprobs, o.logprobs) && bytes.Equal(r.untrained, o.untrained)
}

// truth is a boolean as both databases have it.
func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

func readLink(row scan) (l link, err error) {
	err = row(&l.extent, &l.chain)
	return l, err
}

func readCall(row scan) (callRow, error) {
	var r callRow
	var kind string
	var seed, started, duration, recorded int64
	var request, response, form []byte
	var drift int
	var d trace.Divergence
	c := &r.call
	if err := row(&c.Run, &kind, &c.Step, &c.Task, &c.Sample, &c.Attempt, &c.Seq, &c.Policy, &c.ID, &c.Parent, &c.Agent, &c.Version, &c.Weights,
		&c.Key, &c.Occurrence, &r.prompt, &r.completion, &r.logprobs, &r.untrained, &seed, &c.Temperature, &c.Finish, &c.ParseError,
		&request, &response, &started, &duration, &c.ReplayedFrom, &c.Exchange, &recorded, &d.Earlier, &d.EarlierSeq, &d.Difference,
		&c.API, &form, &drift); err != nil {
		return callRow{}, err
	}
	c.Kind, c.Seed, c.Started, c.Duration = trace.Kind(kind), uint64(seed), fromNanos(started), time.Duration(duration)
	c.Recorded = fromNanos(recorded)
	if d.Earlier > 0 {
		d.Address, d.Seq = c.Address, c.Seq
		c.Divergence = &d
	}
	c.Drift = drift != 0
	if len(form) > 0 {
		c.Form = form
	}
	if len(request) > 0 {
		c.Request = request
	}
	if len(response) > 0 {
		c.Response = response
	}
	return r, nil
}

// unchain lays each call's prompt out in full. Rows come attempt by attempt, in
// each by seq, so that parents come before their children.
func unchain(rows []callRow) ([]trace.Call, error) {
	calls := make([]trace.Call, 0, len(rows))
	at := map[int]int{} // seq to index, in the attempt at hand
	for i, r := range rows {
		c := r.call
		if i > 0 && c.Address != rows[i-1].call.Address {
			clear(at)
		}
		at[c.Seq] = i
		if c.Parent >= 0 {
			p, ok := at[c.Parent]
			if !ok {
				return nil, fmt.Errorf("%w: call %d of %s has lost call %d", ErrChain, c.Seq, c.Address, c.Parent)
			}
			c.Prompt = append(append(c.Prompt, calls[p].Prompt...), calls[p].Completion...)
		}
		if err := r.tokens(&c); err != nil {
			return nil, fmt.Errorf("decode call %d of %s: %w", c.Seq, c.Address, err)
		}
		calls = append(calls, c)
	}
	return calls, nil
}

// tokens decodes what the row holds itself; c.Prompt already is the parent's.
func (r *callRow) tokens(c *trace.Call) (err error) {
	if c.Prompt, err = decodeTokens(c.Prompt, r.prompt); err != nil {
		return err
	}
	if c.Completion, err = decodeTokens([]int32{}, r.completion); err != nil {
		return err
	}
	c.Logprobs, err = decodeFloats(r.logprobs)
	c.Untrained = decodeMarks(r.untrained)
	return err
}
