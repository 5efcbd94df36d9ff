package store_test

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// move returns a promotion of policy "main" of run "demo".
func move(id string, source record.Source, version, previous int) record.Promotion {
	return record.Promotion{Run: "demo", Policy: "main", DecisionID: id, Version: version, Previous: previous, Source: source, By: "ada@host", Reason: "because", At: noon}
}

func TestAPinnedPointerMovesOnlyByHand(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		promote := func(p record.Promotion) error { return s.Promote(t.Context(), p) }
		require.NoError(t, promote(move("gate-0", record.SourceGate, 0, -1)))
		require.ErrorIs(t, promote(move("unpin-1", record.SourceUnpin, 0, 0)), record.ErrConflict, "it is not pinned")
		require.NoError(t, promote(move("pin-1", record.SourcePin, 3, 0)))
		require.NoError(t, promote(move("pin-1", record.SourcePin, 3, 0)))
		for _, source := range []record.Source{record.SourceGate, record.SourceRollback, ""} {
			err := promote(move("x", source, 4, 3))
			require.ErrorIs(t, err, record.ErrPinned)
			require.ErrorContains(t, err, "at version 3 by ada@host since 2026-11-20")
		}
		require.ErrorIs(t, promote(move("unpin-2", record.SourceUnpin, 4, 3)), record.ErrConflict, "an unpin moves nothing")
		require.NoError(t, promote(move("pin-2", record.SourcePin, 2, 3)), "a person may change their mind")
		require.NoError(t, promote(move("unpin-3", record.SourceUnpin, 2, 2)))
		require.NoError(t, promote(move("gate-4", record.SourceGate, 4, 2)))
		require.ErrorIs(t, promote(move("pin-1", record.SourceRollback, 3, 0)), record.ErrConflict, "a decision has one content")

		all, err := s.Promotions(t.Context(), "demo", "main")
		require.NoError(t, err)
		requireEqual(t, []record.Promotion{
			move("gate-0", record.SourceGate, 0, -1), move("pin-1", record.SourcePin, 3, 0), move("pin-2", record.SourcePin, 2, 3),
			move("unpin-3", record.SourceUnpin, 2, 2), move("gate-4", record.SourceGate, 4, 2),
		}, all)
		got, err := s.Promoted(t.Context(), "demo", "main")
		require.NoError(t, err)
		require.False(t, got.Pinned())
	})
}

func TestADecisionMovesThePointerOrNot(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		want := record.Decision{
			Run: "demo", Policy: "main", DecisionID: "gate-2", Candidate: 2, Promoted: 1, Verdict: "refused", Reason: "worse",
			Evidence: json.RawMessage(`{"p_value":0.5}`), At: noon,
		}
		require.NoError(t, s.PutDecision(t.Context(), want))
		later := want
		later.At = noon.Add(time.Hour)
		require.NoError(t, s.PutDecision(t.Context(), later), "a retry is later")
		changed := want
		changed.Verdict = "timed_out"
		require.ErrorIs(t, s.PutDecision(t.Context(), changed), record.ErrConflict)
		require.ErrorIs(t, s.Promote(t.Context(), move("gate-2", record.SourceGate, 2, -1)), record.ErrConflict, "it was refused")
		_, err := s.Promoted(t.Context(), "demo", "main")
		require.ErrorIs(t, err, record.ErrNotFound, "no decision that moves nothing makes anything promoted")

		require.NoError(t, s.Promote(t.Context(), move("gate-0", record.SourceGate, 0, -1)))
		require.ErrorIs(t, s.PutDecision(t.Context(), record.Decision{Run: "demo", Policy: "main", DecisionID: "gate-0", Verdict: "refused"}), record.ErrConflict, "it was promoted")

		got, err := s.Decision(t.Context(), "demo", "main", "gate-2")
		require.NoError(t, err)
		requireEqual(t, want, got)
		_, err = s.Decision(t.Context(), "demo", "critic", "gate-2")
		require.ErrorIs(t, err, record.ErrNotFound)
		all, err := s.Decisions(t.Context(), "demo", "main")
		require.NoError(t, err)
		requireEqual(t, []record.Decision{want}, all)
	})
}

func TestNoDecisionIsBothMadeAndRefused(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		stores := []*store.Store{open(t, url), open(t, url)}
		for round := range 6 {
			var made, refused atomic.Int64
			var g errgroup.Group
			id := fmt.Sprintf("gate-%d", round)
			for i := range 8 {
				g.Go(func() error {
					won := &made
					var err error
					if i%2 == 0 {
						err = stores[i/4].Promote(t.Context(), record.Promotion{Run: id, Policy: "main", DecisionID: id, Version: 1, Previous: -1})
					} else {
						won = &refused
						err = stores[i/4].PutDecision(t.Context(), record.Decision{Run: id, Policy: "main", DecisionID: id, Candidate: 1, Verdict: "moved"})
					}
					if err == nil {
						won.Add(1)
					} else if !isConflict(err) {
						return err
					}
					return nil
				})
			}
			require.NoError(t, g.Wait())
			require.ElementsMatch(t, []int64{0, 4}, []int64{made.Load(), refused.Load()})
		}
	})
}

func TestQuarantinesAreListedByStepAndStream(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		quarantine := func(step int, kind record.Kind, task int) record.Quarantine {
			return record.Quarantine{Run: "demo", Policy: "main", Step: step, Kind: kind, Task: task, Index: 5, Reason: "no grader", At: noon}
		}
		want := []record.Quarantine{quarantine(1, record.Train, 3), quarantine(1, record.Train, 12), quarantine(1, record.Reserve, 0), quarantine(2, record.Train, 4)}
		for _, i := range []int{3, 2, 1, 0, 2} {
			require.NoError(t, s.PutQuarantine(t.Context(), want[i]))
		}
		changed := want[0]
		changed.Reason = "bad luck"
		require.ErrorIs(t, s.PutQuarantine(t.Context(), changed), record.ErrConflict)
		got, err := s.Quarantines(t.Context(), "demo", "main")
		require.NoError(t, err)
		requireEqual(t, want, got)
	})
}

func TestScoresAreOfTheLastAttemptsThatEndedWithAReward(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		seal := func(a record.Address, outcome record.Outcome, reward *float64) {
			require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: outcome, Reward: reward}))
		}
		seal(begin(t, s, rollout(1, 0)), record.InfraFault, nil)
		seal(begin(t, s, rollout(1, 0)), record.OutcomeCompleted, number(0.25))
		late := begin(t, s, rollout(1, 0)) // by a worker that woke up late
		require.NoError(t, s.PutReward(t.Context(), record.Reward{Address: late, Name: "final", Value: 3, Source: store.Grader}))
		graded := begin(t, s, rollout(0, 1))
		seal(graded, record.OutcomeCompleted, nil)
		seal(begin(t, s, rollout(0, 0)), record.AgentFailed, number(-1))
		seal(begin(t, s, rollout(2, 0)), record.OutcomeCompleted, nil)
		other := rollout(0, 0)
		other.Step = 4
		seal(begin(t, s, other), record.OutcomeCompleted, number(9))
		want := []record.Score{{Task: 0, Sample: 0, Attempt: 1, Reward: -1}, {Task: 1, Sample: 0, Attempt: 2, Reward: 0.25}}
		got, err := s.Scores(t.Context(), "demo", "main", record.Train, 3)
		require.NoError(t, err)
		requireEqual(t, want, got)

		require.NoError(t, s.PutReward(t.Context(), record.Reward{Address: graded, Name: "style", Value: 7, Source: store.Grader}))
		require.NoError(t, s.PutReward(t.Context(), record.Reward{Address: graded, Name: "final", Value: 0.5, Source: store.Grader}))
		want = []record.Score{want[0], {Task: 0, Sample: 1, Attempt: 1, Reward: 0.5}, want[1]}
		got, err = s.Scores(t.Context(), "demo", "main", record.Train, 3)
		require.NoError(t, err)
		requireEqual(t, want, got)
		for _, absent := range []struct {
			policy string
			kind   record.Kind
		}{{"critic", record.Train}, {"main", record.Gate}} {
			got, err = s.Scores(t.Context(), "demo", absent.policy, absent.kind, 3)
			require.NoError(t, err)
			require.Empty(t, got)
		}
	})
}
