package store

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/trace"
)

const (
	ofRollout = ` WHERE c.run = $1 AND c.kind = $2 AND c.step = $3 AND c.task = $4 AND c.sample = $5`
	ofAttempt = ofRollout + ` AND c.attempt = $6`

	samplingAttempts = `SELECT DISTINCT c.attempt FROM calls c` + ofRollout + ` AND c.attempt < $6 AND c.replayed_from = 0 ORDER BY c.attempt`
)

// AppendCall records a call of the current attempt. Recording an equal call
// again changes nothing; another call under the same Seq, or under the same
// Policy, Key and Occurrence, is trace.ErrConflict. Calls that differ in Started,
// Duration and Divergence alone are equal; Recorded is the store's own. A sealed
// or replaced attempt is trace.ErrFenced, a Parent that is no recorded beginning
// of the prompt ErrChain.
func (s *Store) AppendCall(ctx context.Context, call *trace.Call) error {
	if err := s.appendCall(ctx, *call); err != nil {
		return fmt.Errorf("append call %d of %s: %w", call.Seq, call.Address, err)
	}
	return nil
}

func (s *Store) appendCall(ctx context.Context, c trace.Call) error {
	if err := checkCall(c); err != nil {
		return err
	}
	r, err := s.callRow(ctx, c)
	if err != nil {
		return err
	}
	return s.write(ctx, survivesKill, func(t tx) error {
		st, err := hold(t, r.call.Address)
		if err != nil {
			return err
		}
		if err := st.open(r.call.Address); err != nil {
			return err
		}
		return r.insert(t)
	})
}

// Calls returns the calls of an attempt in order; none is no error.
func (s *Store) Calls(ctx context.Context, address trace.Address) ([]trace.Call, error) {
	rows, err := list(ctx, s.read(), readCall, selectCalls+ofAttempt+` ORDER BY c.seq`, attemptKey(address)...)
	if err == nil {
		var calls []trace.Call
		if calls, err = unchain(rows); err == nil {
			return calls, nil
		}
	}
	return nil, fmt.Errorf("read calls of %s: %w", address, err)
}

// CallsOfRollout returns the calls of all attempts at a rollout, attempt after
// attempt.
func (s *Store) CallsOfRollout(ctx context.Context, id trace.RolloutID) ([]trace.Call, error) {
	rows, err := list(ctx, s.read(), readCall, selectCalls+ofRollout+` ORDER BY c.attempt, c.seq`, rolloutKey(id)...)
	if err == nil {
		var calls []trace.Call
		if calls, err = unchain(rows); err == nil {
			return calls, nil
		}
	}
	return nil, fmt.Errorf("read calls of %s: %w", id, err)
}

// EarlierCalls returns the calls that attempts before address sampled at the
// same rollout, attempt after attempt, without those that they replayed. It reads
// one attempt at a time, and none that only replayed.
func (s *Store) EarlierCalls(ctx context.Context, address trace.Address) ([]trace.Call, error) {
	attempts, err := list(ctx, s.read(), scalar[int], samplingAttempts, attemptKey(address)...)
	if err != nil {
		return nil, fmt.Errorf("list attempts before %s: %w", address, err)
	}
	var out []trace.Call
	for _, n := range attempts {
		calls, err := s.Calls(ctx, trace.Address{RolloutID: address.RolloutID, Attempt: n})
		if err != nil {
			return nil, err
		}
		for _, c := range calls {
			if c.ReplayedFrom == 0 {
				out = append(out, c)
			}
		}
	}
	return out, nil
}

func checkCall(c trace.Call) error {
	switch {
	case c.Seq < 0 || c.Parent < -1 || c.Occurrence < 0 || c.ReplayedFrom < 0:
		return fmt.Errorf("seq %d, parent %d, occurrence %d, replayed from %d: out of range", c.Seq, c.Parent, c.Occurrence, c.ReplayedFrom)
	case c.ReplayedFrom >= c.Attempt && c.ReplayedFrom > 0:
		return fmt.Errorf("replayed from %d, which is no earlier attempt", c.ReplayedFrom)
	case c.Parent >= c.Seq:
		return fmt.Errorf("%w: parent %d is no earlier call", ErrChain, c.Parent)
	case len(c.Logprobs) != len(c.Completion):
		return fmt.Errorf("%d log-probabilities for %d tokens", len(c.Logprobs), len(c.Completion))
	case c.Untrained != nil && len(c.Untrained) != len(c.Completion):
		return fmt.Errorf("%d loss marks for %d tokens", len(c.Untrained), len(c.Completion))
	}
	return checkFinite("temperature", c.Temperature)
}
