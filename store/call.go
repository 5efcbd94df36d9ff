package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	ofRollout = ` WHERE c.run = $1 AND c.kind = $2 AND c.step = $3 AND c.task = $4 AND c.sample = $5`
	ofAttempt = ofRollout + ` AND c.attempt = $6`

	selectLink = `SELECT c.extent, c.chain FROM calls c` + ofAttempt + ` AND c.seq = $7`

	samplingAttempts = `SELECT DISTINCT c.attempt FROM calls c` + ofRollout + ` AND c.attempt < $6 AND c.replayed_from = 0 ORDER BY c.attempt`
)

// AppendCall records a call of the current attempt with its bodies. Recording an equal
// call again changes nothing. Another call under the same Seq, or under the same Policy,
// Key and Occurrence, returns trace.ErrConflict. Calls are equal if they differ at most
// in Started, Duration, Sampling, Server, Divergence and PartlyRead; the store sets Recorded itself. A sealed
// or replaced attempt returns trace.ErrFenced. A Parent that is not a recorded beginning
// of the prompt returns ErrChain.
func (s *Store) AppendCall(ctx context.Context, call *trace.Exchange) error {
	if err := s.appendCall(ctx, *call); err != nil {
		return fmt.Errorf("append call %d of %s: %w", call.Seq, call.Address, err)
	}
	return nil
}

// appendCall reads the parent outside the transaction: recorded calls never change.
func (s *Store) appendCall(ctx context.Context, c trace.Exchange) error {
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
	err = s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error { return appendRows(t, &r, &x) })
	if err == nil {
		s.recent.put(c.Address, &bodies{c.Seq, x.cost, request, response, r.link})
	}
	return err
}

// appendRows writes a call and its bodies. Almost always the call is new, which takes one
// statement for each table: the key of the bodies' table refuses a second call with the
// same number, and counting the call shows whether the attempt is open.
func appendRows(t database.Tx, r *callRow, x *exchangeRow) error {
	if t.ForUpdate != "" { // if it is empty, nobody else writes until the commit
		if err := openAttempt(t, x.address); err != nil {
			return err
		}
	}
	added, err := x.insert(t)
	if err != nil {
		return err
	}
	if added {
		if err := r.insert(t); err != nil {
			return err
		}
		return r.count(t)
	}
	if err := openAttempt(t, x.address); err != nil {
		return err
	}
	if err := r.same(t); err != nil {
		return err
	}
	return x.same(t)
}

// link returns the link to the parent of c, the zero link if it has no parent.
func (s *Store) link(ctx context.Context, c trace.Call) (link, error) {
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
func (s *Store) Calls(ctx context.Context, address trace.Address) ([]trace.Call, error) {
	calls, err := s.readCalls(ctx, selectCalls+ofAttempt+` ORDER BY c.seq`, attemptKey(address)...)
	if err != nil {
		return nil, fmt.Errorf("read calls of %s: %w", address, err)
	}
	return calls, nil
}

// CallsOfRollout returns the calls of all attempts at a rollout, attempt after
// attempt.
func (s *Store) CallsOfRollout(ctx context.Context, id trace.RolloutID) ([]trace.Call, error) {
	calls, err := s.readCalls(ctx, selectCalls+ofRollout+` ORDER BY c.attempt, c.seq`, rolloutKey(id)...)
	if err != nil {
		return nil, fmt.Errorf("read calls of %s: %w", id, err)
	}
	return calls, nil
}

func checkCall(c trace.Call) error {
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
	return checkFinite("temperature", c.Temperature)
}
