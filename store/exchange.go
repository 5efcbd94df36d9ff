package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/store/delta"
	"github.com/fulgurite/fulgurite/trace"
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
	address  trace.Address
	seq      int
	base     int    // the Seq of the call to whose bodies request is a delta; -1 if it is whole
	cost     int    // of reading the request: the bytes of all rows that are needed
	request  []byte // or its delta
	response []byte
	digest   []byte // of both bodies
}

var exchanges = database.NewTable("exchanges x", append(addressed(func(r *exchangeRow) *trace.Address { return &r.address }),
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
func pack(a trace.Address, seq int, request, response []byte, bases []*bodies) exchangeRow {
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
		err = fmt.Errorf("%w: call %d has other bodies", trace.ErrConflict, r.seq)
	}
	return err
}

// Exchanges returns the calls of an attempt with their bodies, in order. It is no error
// if there are none.
func (s *Store) Exchanges(ctx context.Context, address trace.Address) ([]trace.Exchange, error) {
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
	out := make([]trace.Exchange, len(calls))
	for i, c := range calls {
		b, ok := all[c.Seq]
		if !ok {
			return nil, fmt.Errorf("%w: call %d of %s has none", ErrBodies, c.Seq, address)
		}
		out[i] = trace.Exchange{Call: c, Request: body(b.request), Response: body(b.response)}
	}
	return out, nil
}

const selectWindow = ofAttempt + ` AND c.seq >= $7 AND c.seq < $8 ORDER BY c.seq`

// ExchangesBetween returns the calls of an attempt with Seq from (inclusive) to to
// (exclusive), with their bodies. Unlike for Exchanges, a call's Prompt holds only what
// follows the parent's tokens, so that reading a few calls of a long attempt is cheap.
func (s *Store) ExchangesBetween(ctx context.Context, address trace.Address, from, to int) ([]trace.Exchange, error) {
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
	out := make([]trace.Exchange, len(rows))
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
			return nil, fmt.Errorf("%w: call %d of %s has none", ErrBodies, c.Seq, address)
		}
		out[i] = trace.Exchange{Call: c, Request: body(b.request), Response: body(b.response)}
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
func (s *Store) EarlierExchanges(ctx context.Context, address trace.Address) ([]trace.Exchange, error) {
	attempts, err := database.List(ctx, s.db.Read(), database.Scalar[int], samplingAttempts, attemptKey(address)...)
	if err != nil {
		return nil, fmt.Errorf("list attempts before %s: %w", address, err)
	}
	var out []trace.Exchange
	for _, n := range attempts {
		all, err := s.Exchanges(ctx, trace.Address{RolloutID: address.RolloutID, Attempt: n})
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
