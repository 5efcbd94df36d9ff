package store_test

import (
	"encoding/json"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 1, time.UTC)

func TestRunIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		want := record.Run{
			Name: "demo", WorkflowID: "w", ExecutionID: "e", SpecDigest: "d", Spec: json.RawMessage(`{"b":1,"a": 2}`),
			Splits: map[record.Kind]record.Split{record.Train: {Digest: "x", Count: 3}}, Status: record.Running, Created: noon,
		}
		got, created, err := s.CreateRun(t.Context(), want)
		require.NoError(t, err)
		require.True(t, created)
		requireEqual(t, want, got)

		other, created, err := s.CreateRun(t.Context(), record.Run{Name: "demo", SpecDigest: "other"})
		require.NoError(t, err)
		require.False(t, created)
		requireEqual(t, want, other)

		_, _, err = s.CreateRun(t.Context(), record.Run{Name: "Not A Name"})
		require.ErrorIs(t, err, record.ErrAddress)
		_, err = s.Run(t.Context(), "absent")
		require.ErrorIs(t, err, record.ErrNotFound)
	})
}

func TestRunsAreListedNewestFirst(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		for i, name := range []string{"b", "c", "a"} {
			_, _, err := s.CreateRun(t.Context(), record.Run{Name: name, Created: noon.Add(time.Duration(i))})
			require.NoError(t, err)
		}
		runs, err := s.Runs(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"a", "c", "b"}, []string{runs[0].Name, runs[1].Name, runs[2].Name})
	})
}

func TestFinishedRunStaysFinished(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		_, _, err := s.CreateRun(t.Context(), record.Run{Name: "demo"})
		require.NoError(t, err)
		require.Error(t, s.FinishRun(t.Context(), "demo", record.Running, nil))
		for range 2 {
			require.NoError(t, s.FinishRun(t.Context(), "demo", record.Completed, []byte(`{"promoted":7}`)))
		}
		require.ErrorIs(t, s.FinishRun(t.Context(), "demo", record.Failed, []byte(`{"promoted":7}`)), record.ErrConflict)
		require.ErrorIs(t, s.FinishRun(t.Context(), "demo", record.Completed, nil), record.ErrConflict)
		require.ErrorIs(t, s.FinishRun(t.Context(), "absent", record.Failed, nil), record.ErrNotFound)
		r, err := s.Run(t.Context(), "demo")
		require.NoError(t, err)
		require.Equal(t, record.Completed, r.Status)
		require.JSONEq(t, `{"promoted":7}`, string(r.Result))
		require.WithinDuration(t, time.Now(), r.Finished, time.Minute)
	})
}

func TestARefusedRunLeavesItsNameFree(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		for _, execution := range []string{"a", "b"} {
			got, created, err := s.CreateRun(t.Context(), record.Run{Name: "demo", ExecutionID: execution, Status: record.Refused, Result: record.Failure{Error: "no"}.Result(), Finished: noon})
			require.NoError(t, err)
			require.True(t, created)
			require.Equal(t, []any{execution, "no"}, []any{got.ExecutionID, got.Failure().Error})
		}
		got, created, err := s.CreateRun(t.Context(), record.Run{Name: "demo", ExecutionID: "c"})
		require.NoError(t, err)
		require.True(t, created)
		require.Equal(t, []any{"c", record.Running, true}, []any{got.ExecutionID, got.Status, got.Finished.IsZero()})
		_, created, err = s.CreateRun(t.Context(), record.Run{Name: "demo", ExecutionID: "b", Status: record.Refused})
		require.NoError(t, err)
		require.False(t, created, "a refusal that comes late")
	})
}

func TestAnEndedRunIsReopenedOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		_, _, err := s.CreateRun(t.Context(), record.Run{Name: "demo", ExecutionID: "e"})
		require.NoError(t, err)
		require.NoError(t, s.FinishRun(t.Context(), "demo", record.Terminated, record.Failure{Error: "no"}.Result()))
		ended, err := s.Run(t.Context(), "demo")
		require.NoError(t, err)
		require.NoError(t, s.FinishRun(t.Context(), "demo", record.Terminated, record.Failure{Error: "no"}.Result()))
		require.ErrorIs(t, s.ReopenRun(t.Context(), ended), record.ErrConflict, "it has ended again, in the same way")
		ended, err = s.Run(t.Context(), "demo")
		require.NoError(t, err)
		require.NoError(t, s.ReopenRun(t.Context(), ended))
		got, err := s.Run(t.Context(), "demo")
		require.NoError(t, err)
		require.Equal(t, []any{record.Running, 0, true}, []any{got.Status, len(got.Result), got.Finished.IsZero()})
		require.ErrorIs(t, s.ReopenRun(t.Context(), ended), record.ErrConflict)
		require.ErrorIs(t, s.ReopenRun(t.Context(), record.Run{Name: "absent"}), record.ErrNotFound)
	})
}

func TestAttemptsEndWithTheirRun(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		_, _, err := s.CreateRun(t.Context(), record.Run{Name: "demo"})
		require.NoError(t, err)
		replaced := begin(t, s, rollout(0, 0))
		open := begin(t, s, rollout(0, 0))
		done := begin(t, s, rollout(0, 1))
		require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: done, Outcome: record.OutcomeCompleted, Result: "4"}))
		chat := begin(t, s, record.RolloutID{Run: "demo", Kind: record.Try})
		require.NoError(t, s.FinishRun(t.Context(), "demo", record.Terminated, nil))
		for address, want := range map[record.Address]record.Outcome{
			replaced: record.OutcomeRunning, open: record.InfraFault, done: record.OutcomeCompleted, chat: record.OutcomeRunning,
		} {
			a, err := s.Attempt(t.Context(), address)
			require.NoError(t, err)
			require.Equal(t, want, a.Outcome, address)
		}
		require.ErrorIs(t, s.PutReward(t.Context(), record.Reward{Address: open, Name: "final", Value: 1}), record.ErrFenced)
		_, _, err = s.BeginUnlessEnded(t.Context(), rollout(0, 2), "t", terms, "c0ffee")
		require.ErrorIs(t, err, record.ErrFenced)
		require.ErrorContains(t, err, "terminated")
		run, err := s.Run(t.Context(), "demo")
		require.NoError(t, err)
		require.NoError(t, s.ReopenRun(t.Context(), run))
		_, ended, err := s.BeginUnlessEnded(t.Context(), rollout(0, 0), "t", terms, "c0ffee")
		require.NoError(t, err)
		require.False(t, ended, "a run that goes on attempts it again")
	})
}

// An attempt that begins while its run ends is sealed with the others, or never begins.
func TestNoAttemptGoesOnOnceItsRunHasEnded(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		_, _, err := s.CreateRun(t.Context(), record.Run{Name: "demo"})
		require.NoError(t, err)
		var g errgroup.Group
		for i := range 40 {
			g.Go(func() error {
				if i == 20 {
					return s.FinishRun(t.Context(), "demo", record.Terminated, nil)
				}
				_, _, err := s.BeginUnlessEnded(t.Context(), rollout(0, i), "t", terms, "c0ffee")
				if errors.Is(err, record.ErrFenced) {
					return nil
				}
				return err
			})
		}
		require.NoError(t, g.Wait())
		all, err := s.Attempts(t.Context(), "demo", record.Train, rollout(0, 0).Step)
		require.NoError(t, err)
		for _, a := range all {
			require.Equal(t, record.InfraFault, a.Outcome, a.Address)
		}
	})
}

// Two trainers may both make the version of a step; all see the one that won.
func TestSecondExecutorFindsTheVersionThatStands(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		stores := []*store.Store{open(t, url), open(t, url)}
		id := model.VersionID{Run: "demo", Policy: "main", Number: 1}
		var made atomic.Int64
		seen := make([]model.Version, 16)
		var g errgroup.Group
		for i := range seen {
			g.Go(func() error {
				v, created, err := stores[i%2].PutVersion(t.Context(), model.Version{VersionID: id, Weights: string(rune('a' + i))})
				if created {
					made.Add(1)
				}
				seen[i] = v
				return err
			})
		}
		require.NoError(t, g.Wait())
		require.EqualValues(t, 1, made.Load())
		for _, v := range seen {
			requireEqual(t, seen[0], v)
		}
	})
}

func TestVersionsAreKeptByPolicy(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		put := func(policy string, number int) model.Version {
			v := model.Version{
				VersionID: model.VersionID{Run: "demo", Policy: policy, Number: number}, Parent: number - 1, Manifest: "m", Weights: "w",
				Batch: "b", Fingerprint: "f", Metrics: map[string]float64{"loss": 0.1}, Created: noon,
			}
			_, created, err := s.PutVersion(t.Context(), v)
			require.NoError(t, err)
			require.True(t, created)
			return v
		}
		second, critic, first := put("main", 10), put("critic", 10), put("main", 9)
		all, err := s.Versions(t.Context(), "demo", "main")
		require.NoError(t, err)
		requireEqual(t, []model.Version{first, second}, all)
		got, err := s.Version(t.Context(), critic.VersionID)
		require.NoError(t, err)
		requireEqual(t, critic, got)
		_, err = s.Version(t.Context(), model.VersionID{Run: "demo", Policy: "critic", Number: 9})
		require.ErrorIs(t, err, record.ErrNotFound)
		_, _, err = s.PutVersion(t.Context(), model.Version{VersionID: first.VersionID, Metrics: map[string]float64{"loss": math.NaN()}})
		require.Error(t, err)
	})
}

func TestSecondExecutorFindsTheBatchThatStands(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		want := record.Batch{Run: "demo", Policy: "main", Step: 1, Digest: "d", Sequences: 2, Tokens: 30, Trained: 4, Metrics: map[string]float64{"reward": 0.3}}
		got, created, err := s.PutBatch(t.Context(), want)
		require.NoError(t, err)
		require.True(t, created)
		requireEqual(t, want, got)
		got, created, err = s.PutBatch(t.Context(), record.Batch{Run: "demo", Policy: "main", Step: 1, Digest: "other"})
		require.NoError(t, err)
		require.False(t, created)
		requireEqual(t, want, got)
		got, err = s.Batch(t.Context(), "demo", "main", 1)
		require.NoError(t, err)
		requireEqual(t, want, got)
		_, err = s.Batch(t.Context(), "demo", "critic", 1)
		require.ErrorIs(t, err, record.ErrNotFound)
	})
}

func TestStepIsPutOnRecordOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		second := record.Step{Run: "demo", Policy: "main", Step: 2, Batch: "d2", Metrics: map[string]float64{"reward": 1.0 / 3}, At: noon}
		first := record.Step{Run: "demo", Policy: "main", Step: 1, Batch: "d1", At: noon}
		for _, r := range []record.Step{second, first, second} {
			require.NoError(t, s.PutStep(t.Context(), r))
		}
		later := second
		later.At = noon.Add(time.Hour)
		require.NoError(t, s.PutStep(t.Context(), later), "a retry is later")
		changed := second
		changed.Metrics = map[string]float64{"reward": 0.4}
		require.ErrorIs(t, s.PutStep(t.Context(), changed), record.ErrConflict)
		all, err := s.Steps(t.Context(), "demo", "main")
		require.NoError(t, err)
		requireEqual(t, []record.Step{first, second}, all)
	})
}

func TestEvaluationIsPutOnRecordOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		gate := record.Evaluation{Run: "demo", Policy: "main", Kind: record.Gate, Version: 2, Tasks: 8, Rollouts: 16, Mean: 0.1, StdError: 0.02, Greedy: number(0.5), At: noon}
		test := record.Evaluation{Run: "demo", Policy: "main", Kind: record.Test, Version: 0, Tasks: 8, Rollouts: 8, At: noon}
		for _, e := range []record.Evaluation{gate, test, gate} {
			require.NoError(t, s.PutEvaluation(t.Context(), e))
		}
		changed := gate
		changed.Greedy = nil
		require.ErrorIs(t, s.PutEvaluation(t.Context(), changed), record.ErrConflict)
		changed = gate
		changed.Mean = math.NaN()
		require.Error(t, s.PutEvaluation(t.Context(), changed))
		all, err := s.Evaluations(t.Context(), "demo")
		require.NoError(t, err)
		requireEqual(t, []record.Evaluation{test, gate}, all)
	})
}

func TestPromotionComparesAndSwaps(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		_, err := s.Promoted(t.Context(), "demo", "main")
		require.ErrorIs(t, err, record.ErrNotFound)
		start := record.Promotion{Run: "demo", Policy: "main", DecisionID: "d0", Version: 0, Previous: -1, Source: record.SourceGate, Reason: "the start", At: noon}
		better := record.Promotion{Run: "demo", Policy: "main", DecisionID: "d1", Version: 4, Previous: 0, Source: record.SourceGate, Reason: "better", Evidence: json.RawMessage(`{"mean":1}`), At: noon}
		require.ErrorIs(t, s.Promote(t.Context(), better), record.ErrConflict, "nothing is promoted yet")
		require.NoError(t, s.Promote(t.Context(), start))
		require.NoError(t, s.Promote(t.Context(), better))
		require.NoError(t, s.Promote(t.Context(), start), "a decision that was made stays made, and moves nothing again")

		late := better
		late.DecisionID, late.Version = "d2", 5
		require.ErrorIs(t, s.Promote(t.Context(), late), record.ErrConflict, "the pointer is no longer at 0")
		twisted := better
		twisted.Version = 5
		require.ErrorIs(t, s.Promote(t.Context(), twisted), record.ErrConflict, "a decision has one content")
		back := record.Promotion{Run: "demo", Policy: "main", DecisionID: "d3", Version: 0, Previous: 4, Source: record.SourceRollback, Reason: "rollback", At: noon}
		require.NoError(t, s.Promote(t.Context(), back))

		got, err := s.Promoted(t.Context(), "demo", "main")
		require.NoError(t, err)
		requireEqual(t, back, got)
		all, err := s.Promotions(t.Context(), "demo", "main")
		require.NoError(t, err)
		requireEqual(t, []record.Promotion{start, better, back}, all)
	})
}

func TestOfManyPromotionsAtOnceOneWins(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		stores := []*store.Store{open(t, url), open(t, url)}
		var won, lost atomic.Int64
		var g errgroup.Group
		for i := range 12 {
			g.Go(func() error {
				err := stores[i%2].Promote(t.Context(), record.Promotion{Run: "demo", Policy: "main", DecisionID: string(rune('a' + i)), Version: i, Previous: -1})
				if err == nil {
					won.Add(1)
				} else if lost.Add(1); !isConflict(err) {
					return err
				}
				return nil
			})
		}
		require.NoError(t, g.Wait())
		require.Equal(t, []int64{1, 11}, []int64{won.Load(), lost.Load()})
		all, err := stores[0].Promotions(t.Context(), "demo", "main")
		require.NoError(t, err)
		require.Len(t, all, 1)
	})
}
