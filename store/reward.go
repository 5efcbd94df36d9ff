package store

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/trace"
)

// Grader is the Source of rewards that a grader gives, also after the seal.
// Its reward named "final" is the attempt's Reward, unless the seal had one.
const Grader = "grader"

var rewards = database.NewTable("rewards w", append(addressed(func(r *trace.Reward) *trace.Address { return &r.Address }),
	database.Col("name", func(r *trace.Reward) any { return &r.Name }),
	database.Col("value", func(r *trace.Reward) any { return &r.Value }),
	database.Col("call_id", func(r *trace.Reward) any { return &r.CallID }),
	database.Col("source", func(r *trace.Reward) any { return &r.Source }),
)...)

var (
	insertReward  = rewards.Insert()
	selectRewards = rewards.From()
)

const rewardsOf = ` WHERE w.run = $1 AND w.kind = $2 AND w.step = $3 AND w.task = $4 AND w.sample = $5 AND w.attempt = $6`

// PutReward gives a reward to the current attempt. A reward of the same name
// stands: giving an equal one again changes nothing, another one is
// trace.ErrConflict. A replaced attempt is trace.ErrFenced; so is a sealed one,
// except for a grader's reward.
func (s *Store) PutReward(ctx context.Context, r trace.Reward) error {
	r.Name, r.CallID, r.Source = database.ValidText(r.Name), database.ValidText(r.CallID), database.ValidText(r.Source)
	if r.Name == "" {
		return fmt.Errorf("put reward of %s: it has no name", r.Address)
	}
	if err := checkFinite("value", r.Value); err != nil {
		return fmt.Errorf("put reward %s of %s: %w", r.Name, r.Address, err)
	}
	d := database.SurvivesKill
	if r.Source == Grader {
		d = database.SurvivesPowerLoss
	}
	if err := s.db.Write(ctx, d, func(t database.Tx) error { return putReward(t, r) }); err != nil {
		return fmt.Errorf("put reward %s of %s: %w", r.Name, r.Address, err)
	}
	return nil
}

// Rewards returns the rewards of an attempt by name; none is no error.
func (s *Store) Rewards(ctx context.Context, address trace.Address) ([]trace.Reward, error) {
	all, err := database.List(ctx, s.db.Read(), rewards.Read, selectRewards+rewardsOf+` ORDER BY w.name`, attemptKey(address)...)
	if err != nil {
		return nil, fmt.Errorf("read rewards of %s: %w", address, err)
	}
	return all, nil
}

func putReward(t database.Tx, r trace.Reward) error {
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
	old, _, err := database.InsertOrFind(t, insertReward, rewards.Fields(&r), func() (trace.Reward, error) {
		return database.One(t.Ctx, t, rewards.Read, selectRewards+rewardsOf+` AND w.name = $7`, append(attemptKey(r.Address), r.Name)...)
	})
	if err == nil && old != r {
		err = fmt.Errorf("%w: it is %g by %s already", trace.ErrConflict, old.Value, old.Source)
	}
	return err
}
