package store

import (
	"bytes"
	lru "container/list"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/store/delta"
	"github.com/fulgurite/fulgurite/store/tokens"
)

// ErrBodies is wrapped when the bodies of a call are not those that were recorded.
var ErrBodies = errors.New("bodies are damaged")

const (
	// deltaCost is the cost of a delta beside its bytes: a row to keep and to read.
	deltaCost = 512
	// neighbours is how many calls before one without a parent may be its base.
	neighbours = 4
)

// exchangeRow holds the bodies of a call as their table stores them.
type exchangeRow struct {
	address  record.Address
	seq      int
	base     int    // the Seq of the call to whose bodies request is a delta; -1 if it is whole
	cost     int    // of reading the request: the bytes of all rows that are needed
	request  []byte // or its delta
	response []byte
	digest   []byte // of both bodies
}

var exchanges = database.NewTable("exchanges x", append(addressed(func(r *exchangeRow) *record.Address { return &r.address }),
	database.Col("seq", func(r *exchangeRow) any { return &r.seq }),
	database.Loose("base", func(r *exchangeRow) any { return &r.base }),
	database.Loose("cost", func(r *exchangeRow) any { return &r.cost }),
	database.Loose("request", func(r *exchangeRow) any { return (*database.Optional)(&r.request) }),
	database.Loose("response", func(r *exchangeRow) any { return (*database.Optional)(&r.response) }),
	database.Col("digest", func(r *exchangeRow) any { return &r.digest }),
)...)

var (
	insertExchange  = exchanges.Insert()
	selectExchanges = exchanges.From()
)

const (
	ofExchanges = ` WHERE x.run = $1 AND x.kind = $2 AND x.step = $3 AND x.task = $4 AND x.sample = $5 AND x.attempt = $6`
	// basesOf selects the rows from which a body is decoded: its own row, its base, the
	// base of that and so on.
	basesOf = `WITH RECURSIVE below (run, kind, step, task, sample, attempt, seq, base) AS (
SELECT x.run, x.kind, x.step, x.task, x.sample, x.attempt, x.seq, x.base FROM exchanges x` + ofExchanges + ` AND x.seq = $7
UNION ALL SELECT x.run, x.kind, x.step, x.task, x.sample, x.attempt, x.seq, x.base FROM below b JOIN exchanges x ON
x.run = b.run AND x.kind = b.kind AND x.step = b.step AND x.task = b.task AND x.sample = b.sample AND x.attempt = b.attempt AND x.seq = b.base) `
	// basesOfWindow selects the bases of the bodies of several calls, each once.
	basesOfWindow = `WITH RECURSIVE below (run, kind, step, task, sample, attempt, seq, base) AS (
SELECT x.run, x.kind, x.step, x.task, x.sample, x.attempt, x.seq, x.base FROM exchanges x` + ofExchanges + ` AND x.seq >= $7 AND x.seq < $8
UNION SELECT x.run, x.kind, x.step, x.task, x.sample, x.attempt, x.seq, x.base FROM below b JOIN exchanges x ON
x.run = b.run AND x.kind = b.kind AND x.step = b.step AND x.task = b.task AND x.sample = b.sample AND x.attempt = b.attempt AND x.seq = b.base) `
	matchingBases = ` WHERE x.run = below.run AND x.kind = below.kind AND x.step = below.step AND x.task = below.task
AND x.sample = below.sample AND x.attempt = below.attempt AND x.seq = below.seq ORDER BY x.seq`
)

// bodies holds the bodies of a recorded call.
type bodies struct {
	seq, cost         int
	request, response []byte
	link              link // of the call, if this process recorded it
}

// text returns the text against which deltas are encoded. Requests of children begin like
// it does from offset from on.
func (b *bodies) text() (text []byte, from int) {
	return append(append(make([]byte, 0, len(b.response)+len(b.request)), b.response...), b.request...), len(b.response)
}

// pack encodes the request as a delta to the best of the bases, or completely if reading
// the delta would take more than twice the request's own bytes. So the deltas before a
// complete request pay for it, and an attempt's storage grows only with its new text.
func pack(a record.Address, seq int, request, response []byte, bases []*bodies) exchangeRow {
	r := exchangeRow{
		address: a, seq: seq, base: -1, cost: len(request) + len(response), request: request, response: response, digest: digestOf(request, response),
	}
	var best *bodies
	shared := -1
	for _, b := range bases {
		if n := delta.Shared(b.request, request); n > shared {
			best, shared = b, n
		}
	}
	if best == nil || best.cost+deltaCost > 2*len(request) {
		return r
	}
	text, from := best.text()
	d := delta.Encode(text, from, request)
	if cost := best.cost + deltaCost + len(d) + len(response); cost <= 2*len(request) {
		r.base, r.cost, r.request = best.seq, cost, d
	}
	return r
}

func digestOf(request, response []byte) []byte {
	d := sha256.New()
	_, _ = d.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(request)))) // a hash never fails
	_, _ = d.Write(request)
	_, _ = d.Write(response)
	return d.Sum(nil)
}

// unpack decodes the bodies of rows. The rows must be ordered by seq, so that each
// follows its base.
func unpack(rows []exchangeRow) (map[int]*bodies, error) {
	out := make(map[int]*bodies, len(rows))
	for _, r := range rows {
		b := &bodies{seq: r.seq, cost: r.cost, request: r.request, response: r.response}
		if r.base >= 0 {
			base, ok := out[r.base]
			if !ok {
				return nil, fmt.Errorf("%w: call %d of %s has lost those of call %d", ErrBodies, r.seq, r.address, r.base)
			}
			text, _ := base.text()
			var err error
			if b.request, err = delta.Decode(text, r.request); err != nil {
				return nil, fmt.Errorf("%w: call %d of %s: %w", ErrBodies, r.seq, r.address, err)
			}
		}
		if !bytes.Equal(digestOf(b.request, b.response), r.digest) {
			return nil, fmt.Errorf("%w: call %d of %s has another digest", ErrBodies, r.seq, r.address)
		}
		out[r.seq] = b
	}
	return out, nil
}

// insert adds the row unless the attempt has a call of that number.
func (r *exchangeRow) insert(t database.Tx) (added bool, err error) {
	n, err := t.Exec(insertExchange, exchanges.Fields(r)...)
	return n == 1, err
}

// same returns an error if the bodies on record under the row's number differ from the
// row.
func (r *exchangeRow) same(t database.Tx) error {
	old, err := database.One(t.Ctx, t, exchanges.Read, selectExchanges+ofExchanges+` AND x.seq = $7`, append(attemptKey(r.address), r.seq)...)
	if err == nil && !exchanges.Same(r, &old) {
		err = fmt.Errorf("%w: call %d has other bodies", record.ErrConflict, r.seq)
	}
	return err
}

// withoutBodies returns the error for a call that has no bodies: record.ErrForgotten if those
// of its run were removed.
func (s *Store) withoutBodies(ctx context.Context, address record.Address, seq int) error {
	removed, err := s.Forgotten(ctx, address.Run)
	if err != nil {
		return err
	}
	for _, f := range removed {
		if f.What == record.ForgottenRun || f.What == record.ForgottenRecords {
			return fmt.Errorf("read bodies of %s: %w", address, changed(f))
		}
	}
	return fmt.Errorf("%w: call %d of %s has none", ErrBodies, seq, address)
}

// Exchanges returns the calls of an attempt with their bodies, in order. It is no error
// if there are none.
func (s *Store) Exchanges(ctx context.Context, address record.Address) ([]record.Exchange, error) {
	calls, err := s.Calls(ctx, address)
	if err != nil || len(calls) == 0 {
		return nil, err
	}
	rows, err := database.List(ctx, s.db.Read(), exchanges.Read, selectExchanges+ofExchanges+` ORDER BY x.seq`, attemptKey(address)...)
	if err != nil {
		return nil, fmt.Errorf("read bodies of %s: %w", address, err)
	}
	all, err := unpack(rows)
	if err != nil {
		return nil, err
	}
	out := make([]record.Exchange, len(calls))
	for i, c := range calls {
		b, ok := all[c.Seq]
		if !ok {
			return nil, s.withoutBodies(ctx, address, c.Seq)
		}
		out[i] = record.Exchange{Call: c, Request: body(b.request), Response: body(b.response)}
	}
	return out, nil
}

const selectWindow = ofAttempt + ` AND c.seq >= $7 AND c.seq < $8 ORDER BY c.seq`

// ExchangesBetween returns the calls of an attempt with Seq from (inclusive) to to
// (exclusive), with their bodies. Unlike for Exchanges, a call's Prompt holds only what
// follows the parent's tokens, so that reading a few calls of a long attempt is cheap.
func (s *Store) ExchangesBetween(ctx context.Context, address record.Address, from, to int) ([]record.Exchange, error) {
	rows, err := database.List(ctx, s.db.Read(), calls.Read, selectCalls+selectWindow, append(attemptKey(address), from, to)...)
	if err != nil {
		return nil, fmt.Errorf("read calls %d to %d of %s: %w", from, to, address, err)
	}
	below, err := database.List(ctx, s.db.Read(), exchanges.Read, basesOfWindow+exchanges.From("below")+matchingBases, append(attemptKey(address), from, to)...)
	if err != nil {
		return nil, fmt.Errorf("read bodies of calls %d to %d of %s: %w", from, to, address, err)
	}
	all, err := unpack(below)
	if err != nil {
		return nil, err
	}
	out := make([]record.Exchange, len(rows))
	for i, r := range rows {
		c := r.call
		if _, err := r.tokens(&c, nil); err != nil {
			return nil, fmt.Errorf("decode call %d of %s: %w", c.Seq, address, err)
		}
		if r.divergence.Earlier > 0 {
			d := r.divergence
			d.Address, d.Seq = c.Address, c.Seq
			c.Divergence = &d
		}
		b, ok := all[c.Seq]
		if !ok {
			return nil, s.withoutBodies(ctx, address, c.Seq)
		}
		out[i] = record.Exchange{Call: c, Request: body(b.request), Response: body(b.response)}
	}
	return out, nil
}

// body returns nil for an empty body.
func body(b []byte) json.RawMessage {
	if len(b) == 0 {
		return nil
	}
	return b
}

// EarlierExchanges returns the calls, with their bodies, that attempts before address
// sampled at the same rollout, ordered by attempt. It leaves out calls that these
// attempts replayed. It reads one attempt at a time, and skips attempts that only
// replayed.
func (s *Store) EarlierExchanges(ctx context.Context, address record.Address) ([]record.Exchange, error) {
	attempts, err := database.List(ctx, s.db.Read(), database.Scalar[int], samplingAttempts, attemptKey(address)...)
	if err != nil {
		return nil, fmt.Errorf("list attempts before %s: %w", address, err)
	}
	var out []record.Exchange
	for _, n := range attempts {
		all, err := s.Exchanges(ctx, record.Address{RolloutID: address.RolloutID, Attempt: n})
		if err != nil {
			return nil, err
		}
		for _, x := range all {
			if x.ReplayedFrom == 0 {
				out = append(out, x)
			}
		}
	}
	return out, nil
}

// ErrChain is wrapped when a call does not continue the parent that it names.
var ErrChain = errors.New("call does not continue its parent")

// callRow is a call as its table stores it.
type callRow struct {
	call record.Call // without Prompt, Completion, Logprobs, Untrained and Divergence

	prompt                          []byte // what follows the parent's prompt and completion
	completion, logprobs, untrained []byte
	link                            link
	divergence                      record.Divergence // zero if it has no Earlier
}

// link describes the parent of a call: how many tokens its prompt and completion have
// together, and their digest.
type link struct {
	extent int
	chain  []byte
}

var calls = database.NewTable("calls c", append(addressed(func(r *callRow) *record.Address { return &r.call.Address }),
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
	database.Col("top_p", func(r *callRow) any { return &r.call.TopP }),
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
func newCallRow(c record.Call, parent link) (callRow, error) {
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
	return fmt.Errorf("%w: request %s, occurrence %d, is on record under another number", record.ErrConflict, c.Key, c.Occurrence)
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
		err = fmt.Errorf("%w: call %d is another one", record.ErrConflict, r.call.Seq)
	}
	return err
}

// readCalls reads the calls that a query selects, ordered by attempt and seq.
func (s *Store) readCalls(ctx context.Context, query string, args ...any) ([]record.Call, error) {
	rows, err := database.List(ctx, s.db.Read(), calls.Read, query, args...)
	if err != nil {
		return nil, err
	}
	return unchain(rows)
}

// unchain restores each call's full prompt. Rows must be ordered by attempt and seq, so
// that parents precede their children. Calls that continue each other share one array,
// since a parent's tokens are the beginning of its child's prompt.
func unchain(rows []callRow) ([]record.Call, error) {
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
	out := make([]record.Call, len(rows))
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
func (r *callRow) tokens(c *record.Call, before []int32) (all []int32, err error) {
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

// recentBytes bounds the bodies that a store keeps in memory.
const recentBytes = 64 << 20

// recent holds the most recently used bodies of calls, since the next call of an attempt
// is encoded against them. They are on record and never change.
type recent struct {
	mu    sync.Mutex
	bytes int
	order lru.List // of recentBodies, the latest in front
	at    map[callKey]*lru.Element
}

type callKey struct {
	address record.Address
	seq     int
}

type recentBodies struct {
	callKey
	*bodies
}

func (r *recent) get(a record.Address, seq int) *bodies {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.at[callKey{a, seq}]
	if !ok {
		return nil
	}
	r.order.MoveToFront(e)
	return e.Value.(recentBodies).bodies
}

func (r *recent) put(a record.Address, b *bodies) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := callKey{a, b.seq}
	if _, ok := r.at[key]; ok {
		return
	}
	if r.at == nil {
		r.at = map[callKey]*lru.Element{}
	}
	r.at[key] = r.order.PushFront(recentBodies{key, b})
	for r.bytes += b.size(); r.bytes > recentBytes; {
		last := r.order.Back()
		gone := r.order.Remove(last).(recentBodies)
		delete(r.at, gone.callKey)
		r.bytes -= gone.size()
	}
}

// drop forgets the bodies of an attempt, whose calls were removed.
func (r *recent) drop(a record.Address) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := r.order.Front(); e != nil; {
		b, next := e.Value.(recentBodies), e.Next()
		if b.address == a {
			r.order.Remove(e)
			delete(r.at, b.callKey)
			r.bytes -= b.size()
		}
		e = next
	}
}

// size returns about how many bytes of memory bodies take.
func (b *bodies) size() int { return len(b.request) + len(b.response) + deltaCost }

// bases returns the recorded calls against which the bodies of c may be encoded: its
// parent, or, if it has none, the calls just before it.
func (r *recent) bases(ctx context.Context, from database.Querier, c record.Call) ([]*bodies, error) {
	first, last := c.Parent, c.Parent
	if c.Parent < 0 {
		first, last = max(0, c.Seq-neighbours), c.Seq-1
	}
	var out []*bodies
	for seq := first; seq <= last; seq++ {
		b, err := r.bodiesOf(ctx, from, c.Address, seq)
		switch {
		case err == nil:
			out = append(out, b)
		case !errors.Is(err, sql.ErrNoRows):
			return nil, fmt.Errorf("read bodies of call %d: %w", seq, err)
		}
	}
	return out, nil
}

// bodiesOf reads the bodies of one recorded call, which are kept in memory for its
// children.
func (r *recent) bodiesOf(ctx context.Context, from database.Querier, a record.Address, seq int) (*bodies, error) {
	if b := r.get(a, seq); b != nil {
		return b, nil
	}
	rows, err := database.List(ctx, from, exchanges.Read, basesOf+exchanges.From("below")+matchingBases, append(attemptKey(a), seq)...)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, sql.ErrNoRows
	}
	all, err := unpack(rows)
	if err != nil {
		return nil, err
	}
	r.put(a, all[seq])
	return all[seq], nil
}
