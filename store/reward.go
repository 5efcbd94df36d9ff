package store

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/trace"
)

// Grader is the Source of rewards that a grader gives, also after the seal.
// Its reward named "final" is the attempt's Reward, unless the seal had one.
const Grader = "grader"

var rewards = table[trace.Reward]{"rewards w", append(addressed(func(r *trace.Reward) *trace.Address { return &r.Address }), []column[trace.Reward]{
	{"name", func(r *trace.Reward) any { return &r.Name }, false},
	{"value", func(r *trace.Reward) any { return &r.Value }, false},
	{"call_id", func(r *trace.Reward) any { return &r.CallID }, false},
	{"source", func(r *trace.Reward) any { return &r.Source }, false},
}...)}

var (
	insertReward  = rewards.insert()
	selectRewards = rewards.from()
)

const rewardsOf = ` WHERE w.run = $1 AND w.kind = $2 AND w.step = $3 AND w.task = $4 AND w.sample = $5 AND w.attempt = $6`

// PutReward gives a reward to the current attempt. A reward of the same name
// stands: giving an equal one again changes nothing, another one is
// trace.ErrConflict. A replaced attempt is trace.ErrFenced; so is a sealed one,
// except for a grader's reward.
func (s *Store) PutReward(ctx context.Context, r trace.Reward) error {
	r.Name, r.CallID, r.Source = clean(r.Name), clean(r.CallID), clean(r.Source)
	if r.Name == "" {
		return fmt.Errorf("put reward of %s: it has no name", r.Address)
	}
	if err := checkFinite("value", r.Value); err != nil {
		return fmt.Errorf("put reward %s of %s: %w", r.Name, r.Address, err)
	}
	d := survivesKill
	if r.Source == Grader {
		d = survivesPowerLoss
	}
	if err := s.write(ctx, d, func(t tx) error { return putReward(t, r) }); err != nil {
		return fmt.Errorf("put reward %s of %s: %w", r.Name, r.Address, err)
	}
	return nil
}

// Rewards returns the rewards of an attempt by name; none is no error.
func (s *Store) Rewards(ctx context.Context, address trace.Address) ([]trace.Reward, error) {
	all, err := list(ctx, s.read(), rewards.read, selectRewards+rewardsOf+` ORDER BY w.name`, attemptKey(address)...)
	if err != nil {
		return nil, fmt.Errorf("read rewards of %s: %w", address, err)
	}
	return all, nil
}

func putReward(t tx, r trace.Reward) error {
	st, err := hold(t, r.Address)
	if err != nil {
		return err
	}
	err = st.open(r.Address)
	if r.Source == Grader {
		err = st.current(r.Address)
	}
	if err != nil {
		return err
	}
	old, _, err := keep(t, insertReward, rewards.fields(&r), func() (trace.Reward, error) {
		return one(t.ctx, t, rewards.read, selectRewards+rewardsOf+` AND w.name = $7`, append(attemptKey(r.Address), r.Name)...)
	})
	if err == nil && old != r {
		err = fmt.Errorf("%w: it is %g by %s already", trace.ErrConflict, old.Value, old.Source)
	}
	return err
}
