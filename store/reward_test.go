package store_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestRewardStandsOnceGiven(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		final := record.Reward{Address: a, Name: "final", Value: 0.1, CallID: "chatcmpl-1", Source: "agent"}
		step := record.Reward{Address: a, Name: "a step", Value: -3, Source: "agent"}
		for range 2 {
			require.NoError(t, s.PutReward(t.Context(), final))
			require.NoError(t, s.PutReward(t.Context(), step))
		}
		for name, change := range map[string]func(*record.Reward){
			"value":  func(r *record.Reward) { r.Value = 0.2 },
			"source": func(r *record.Reward) { r.Source = store.Grader },
		} {
			changed := final
			change(&changed)
			require.ErrorIs(t, s.PutReward(t.Context(), changed), record.ErrConflict, name)
		}
		for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			require.Error(t, s.PutReward(t.Context(), record.Reward{Address: a, Name: "odd", Value: v}))
		}
		require.Error(t, s.PutReward(t.Context(), record.Reward{Address: a, Value: 1}), "a reward has a name")
		got, err := s.Rewards(t.Context(), a)
		require.NoError(t, err)
		requireEqual(t, []record.Reward{step, final}, got)
	})
}

// Each call has its own rewards, and none of them is the attempt's.
func TestRewardsAreKeptByNameAndCall(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		all := []record.Reward{
			{Address: a, Name: "final", Value: 1, Source: "agent"},
			{Address: a, Name: "final", Value: 0.25, CallID: "chatcmpl-1", Source: "agent"},
			{Address: a, Name: "final", Value: 0.75, CallID: "chatcmpl-2", Source: "agent"},
			{Address: a, Name: "style", Value: 0.75, CallID: "chatcmpl-2", Source: "agent"},
		}
		for _, r := range append(all, all...) {
			require.NoError(t, s.PutReward(t.Context(), r))
		}
		got, err := s.Rewards(t.Context(), a)
		require.NoError(t, err)
		requireEqual(t, all, got)
		require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted}))
		graded, err := s.Attempts(t.Context(), a.Run, a.Kind, a.Step)
		require.NoError(t, err)
		require.Len(t, graded, 1, "one row for each attempt, however many rewards it has")
		require.Nil(t, graded[0].Reward)
	})
}

func TestTheLastEmittedRewardStands(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		at := time.Date(2026, 11, 20, 1, 2, 3, 4, time.UTC)
		second := record.Reward{Address: a, Name: "final", Value: 0.9, Source: "agent", Emitted: at.Add(time.Second)}
		first := record.Reward{Address: a, Name: "final", Value: 0.2, Source: "agent", Emitted: at}
		for _, r := range []record.Reward{first, second, first, second} { // exports come twice, and late
			require.NoError(t, s.PutReward(t.Context(), r))
		}
		got, err := s.Rewards(t.Context(), a)
		require.NoError(t, err)
		requireEqual(t, []record.Reward{second}, got)
		posted := record.Reward{Address: a, Name: "final", Value: 0.5, Source: "agent"}
		require.ErrorIs(t, s.PutReward(t.Context(), posted), record.ErrConflict)
		posted.Value = 0.9
		require.NoError(t, s.PutReward(t.Context(), posted))
	})
}

func TestGraderMayDecideAfterTheSeal(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		seal := record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Result: "42"}
		require.NoError(t, s.SealAttempt(t.Context(), seal))
		grade := record.Reward{Address: a, Name: "final", Value: 0.75, Source: store.Grader}
		require.NoError(t, s.PutReward(t.Context(), grade))
		require.NoError(t, s.PutReward(t.Context(), record.Reward{Address: a, Name: "style", Value: 9, Source: store.Grader}))
		got, err := s.Attempt(t.Context(), a)
		require.NoError(t, err)
		requireEqual(t, number(0.75), got.Reward)
		require.NoError(t, s.SealAttempt(t.Context(), seal), "the grade is no part of the seal")
		trajectories, err := s.Trajectories(t.Context(), []record.Address{a})
		require.NoError(t, err)
		requireEqual(t, number(0.75), trajectories[0].Reward)
	})
}

func TestRewardOfTheSealCounts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		require.NoError(t, s.PutReward(t.Context(), record.Reward{Address: a, Name: "final", Value: 5, Source: "agent"}))
		got, err := s.Attempt(t.Context(), a)
		require.NoError(t, err)
		require.Nil(t, got.Reward, "what an agent says of itself is not the attempt's reward")
		require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: number(0)}))
		got, err = s.Attempt(t.Context(), a)
		require.NoError(t, err)
		requireEqual(t, number(0), got.Reward)
	})
}

func TestEventsAreNumberedInOrder(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		at := time.Date(2026, 11, 20, 1, 2, 3, 4, time.UTC)
		first := record.Event{Address: a, Seq: 7, Name: "tool", Fields: map[string]any{"name": "calc", "ok": true, "n": 1.5}, At: at}
		second := record.Event{Address: a, Name: "tool", At: at.Add(1)}
		for _, e := range []record.Event{first, second, first} {
			require.NoError(t, s.PutEvent(t.Context(), e))
		}
		first.Seq, second.Seq = 0, 1
		got, err := s.Events(t.Context(), a)
		require.NoError(t, err)
		requireEqual(t, []record.Event{first, second}, got)
		require.Error(t, s.PutEvent(t.Context(), record.Event{Address: a, Name: "odd", Fields: map[string]any{"x": math.NaN()}}))
	})
}

func TestEventsAtOnceGetDifferentNumbers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		var g errgroup.Group
		for i := range 24 {
			g.Go(func() error {
				return s.PutEvent(t.Context(), record.Event{Address: a, Name: "tick", Fields: map[string]any{"i": i}})
			})
		}
		require.NoError(t, g.Wait())
		got, err := s.Events(t.Context(), a)
		require.NoError(t, err)
		seen := map[any]bool{}
		for i, e := range got {
			require.Equal(t, i, e.Seq)
			require.False(t, e.At.IsZero())
			seen[e.Fields["i"]] = true
		}
		require.Len(t, seen, 24)
	})
}
