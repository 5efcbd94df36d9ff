package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestTrialsSayWhatBecameOfEveryAttempt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		lost := begin(t, s, rollout(1, 0))
		appendCalls(t, s, call(lost, 0, []int32{1}, []int32{2}))
		require.NoError(t, s.PutEvent(t.Context(), record.Event{Address: lost, Name: "early", At: noon.Add(-time.Hour)}))
		calls, err := s.Exchanges(t.Context(), lost)
		require.NoError(t, err)
		faulty := begin(t, s, rollout(1, 0))
		event := calls[0].Recorded.Add(time.Hour)
		require.NoError(t, s.PutEvent(t.Context(), record.Event{Address: faulty, Name: "late", At: event}))
		require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: faulty, Outcome: record.InfraFault}))
		won := begin(t, s, rollout(1, 0))
		cutOff := call(won, 0, []int32{1}, []int32{2, 300})
		cutOff.Finish = record.FinishLength
		appendCalls(t, s, cutOff)
		require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: won, Outcome: record.OutcomeCompleted}))
		require.NoError(t, s.PutReward(t.Context(), record.Reward{Address: won, Name: "final", Value: 0.5, Source: store.Grader}))
		running := begin(t, s, rollout(2, 0))
		appendCalls(t, s, call(running, 0, []int32{1}, []int32{2}))
		failed := begin(t, s, rollout(0, 1))
		require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: failed, Outcome: record.AgentFailed, Failure: "timeout", Reward: number(-1)}))

		got, err := s.Trials(t.Context(), "demo", "main")
		require.NoError(t, err)
		for i := range got {
			require.WithinDuration(t, time.Now(), got[i].Begun, time.Minute)
			got[i].Begun = time.Time{}
		}
		requireEqual(t, []record.Trial{
			{Address: failed, TaskID: "task-x", Outcome: record.AgentFailed, Failure: "timeout", Reward: number(-1)},
			{Address: lost, TaskID: "task-x", Calls: 1, Tokens: 1, Progress: calls[0].Recorded},
			{Address: faulty, TaskID: "task-x", Outcome: record.InfraFault, Progress: event},
			{Address: won, TaskID: "task-x", Outcome: record.OutcomeCompleted, Reward: number(0.5), Calls: 1, Tokens: 2, CutOff: 1},
			{Address: running, TaskID: "task-x", Calls: 1, Tokens: 1},
		}, got)
		for most, want := range map[int]int{0: 0, 1: 1, 9: 1} {
			cut, err := s.TrialsCutOff(t.Context(), "demo", most)
			require.NoError(t, err)
			require.Len(t, cut, want)
			for _, one := range cut {
				one.Begun = time.Time{}
				requireEqual(t, got[3], one)
			}
		}
		got, err = s.Trials(t.Context(), "demo", "critic")
		require.NoError(t, err)
		require.Empty(t, got)
	})
}

func TestReplaysCountCallsAndTokens(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		first := begin(t, s, rollout(0, 0))
		calls := []record.Exchange{call(first, 0, []int32{1}, []int32{2, 70000, 128}), call(first, 1, []int32{9}, []int32{127})}
		calls[1].Policy = "writer" // the attempt is of the run's policies
		appendCalls(t, s, calls...)
		second := begin(t, s, rollout(0, 0))
		for i := range calls {
			calls[i].Address, calls[i].ReplayedFrom = second, 1
		}
		appendCalls(t, s, append(calls, call(second, 2, []int32{3}, []int32{4, 5}))...)
		got, err := s.Replays(t.Context(), "demo", "main")
		require.NoError(t, err)
		requireEqual(t, []record.Replayed{{Address: second, Calls: 2, Tokens: 4}}, got)
		got, err = s.Replays(t.Context(), "demo", "writer")
		require.NoError(t, err)
		require.Empty(t, got, "no attempt is of this policy alone")
	})
}

func TestBatchesAreListedByStep(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		want := []record.Batch{{Run: "demo", Policy: "main", Step: 2, Digest: "d2"}, {Run: "demo", Policy: "main", Step: 10, Digest: "d10"}}
		for _, i := range []int{1, 0} {
			_, _, err := s.PutBatch(t.Context(), want[i])
			require.NoError(t, err)
		}
		got, err := s.Batches(t.Context(), "demo", "main")
		require.NoError(t, err)
		requireEqual(t, want, got)
	})
}

func TestTheTrialsOfAStepAreOfItAlone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		first, second := begin(t, s, rollout(0, 0)), begin(t, s, rollout(0, 0))
		require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: second, Outcome: record.AgentFailed, Failure: "timeout", Reward: number(-1)}))
		other := rollout(0, 0)
		other.Step++
		begin(t, s, other)
		got, err := s.TrialsOfStep(t.Context(), "demo", first.Kind, first.Step)
		require.NoError(t, err)
		for i := range got {
			got[i].Begun = time.Time{}
		}
		requireEqual(t, []record.Trial{
			{Address: first, TaskID: "task-x"},
			{Address: second, TaskID: "task-x", Outcome: record.AgentFailed, Failure: "timeout", Reward: number(-1)},
		}, got)
	})
}

func TestResultsOfTasksAreThoseOfAttemptsThatCount(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		begin(t, s, rollout(0, 0)) // never sealed
		for sample, reward := range []*float64{number(1), number(0), nil} {
			a := begin(t, s, rollout(3, sample))
			outcome := map[bool]record.Outcome{true: record.OutcomeCompleted, false: record.AgentFailed}[sample < 2]
			require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: outcome, Reward: reward}))
		}
		later := rollout(1, 0)
		later.Step += 2
		a := begin(t, s, later)
		require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted}))
		require.NoError(t, s.PutReward(t.Context(), record.Reward{Address: a, Name: "final", Value: 2, Source: store.Grader}))
		got, err := s.TaskResults(t.Context(), "demo", "main", 1, 8)
		require.NoError(t, err)
		requireEqual(t, []record.TaskResult{{
			Kind: later.Kind, TaskID: "task-x", Attempts: 4, Graded: 3, Mean: 1, Min: 0, Max: 2, Passed: 2, Failed: 1, Step: later.Step, Task: 1,
		}}, got)
		test := rollout(0, 8)
		test.Kind = record.Test
		require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: begin(t, s, test), Outcome: record.OutcomeCompleted, Reward: number(1)}))
		again := begin(t, s, rollout(3, 1))
		require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: again, Outcome: record.OutcomeCompleted, Reward: number(3)}))
		got, err = s.TaskResults(t.Context(), "demo", "main", 1, 8)
		require.NoError(t, err)
		require.Len(t, got, 1, "the sample at temperature 0 is no result of a task")
		require.InDelta(t, 2, got[0].Mean, 1e-9, "an attempt that another replaced does not count")
		require.Equal(t, 4, got[0].Attempts)
		got, err = s.TaskResults(t.Context(), "demo", "critic", 1, 8)
		require.NoError(t, err)
		require.Empty(t, got)
	})
}

func TestStepsAndLagsAreReadFromOneOn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		_, err := s.LastStep(t.Context(), "demo", "main")
		require.ErrorIs(t, err, record.ErrNotFound)
		for step := 1; step <= 3; step++ {
			require.NoError(t, s.PutStep(t.Context(), record.Step{Run: "demo", Policy: "main", Step: step, Metrics: map[string]float64{"reward/mean": float64(step)}}))
			for sample := range 2 {
				id := record.RolloutID{Run: "demo", Kind: record.Train, Step: step, Sample: sample}
				_, err := s.BeginAttempt(t.Context(), id, "task-x", record.Terms{Policy: "main", Version: max(0, step-1-sample)}, "key")
				require.NoError(t, err)
			}
		}
		last, err := s.LastStep(t.Context(), "demo", "main")
		require.NoError(t, err)
		require.Equal(t, 3, last.Step)
		steps, err := s.StepsAfter(t.Context(), "demo", "main", 1)
		require.NoError(t, err)
		require.Len(t, steps, 2)
		require.Equal(t, map[string]float64{"reward/mean": 2}, steps[0].Metrics)
		lags, err := s.Lags(t.Context(), "demo", "main", 1)
		require.NoError(t, err)
		require.Equal(t, map[int]float64{2: 0.5, 3: 0.5}, lags)
	})
}

func TestCallsOfTrainingAreCountedByPolicy(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		of := func(c record.Exchange, policy string) record.Exchange {
			c.Policy = policy
			return c
		}
		seal := func(a record.Address, outcome record.Outcome) {
			require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: outcome}))
		}
		lost := begin(t, s, rollout(1, 0))
		appendCalls(t, s, of(call(lost, 0, []int32{1}, []int32{2}), "writer"))
		seal(lost, record.InfraFault)
		won := begin(t, s, rollout(1, 0))
		appendCalls(t, s, of(call(won, 0, []int32{1}, []int32{2, 300}), "writer"), of(call(won, 1, []int32{3}, []int32{4}), "checker"), of(call(won, 2, []int32{5}, []int32{6, 7, 70000}), "writer"))
		seal(won, record.OutcomeCompleted)
		failed := begin(t, s, rollout(2, 1))
		appendCalls(t, s, of(call(failed, 0, []int32{1}, []int32{2}), "checker"))
		seal(failed, record.AgentFailed)
		running := begin(t, s, rollout(2, 0))
		appendCalls(t, s, of(call(running, 0, []int32{1}, []int32{2}), "checker"))
		evaluated := rollout(3, 0)
		evaluated.Kind = record.Gate
		gate := begin(t, s, evaluated)
		appendCalls(t, s, of(call(gate, 0, []int32{1}, []int32{2}), "checker"))
		seal(gate, record.OutcomeCompleted)

		got, err := s.PolicyUsage(t.Context(), "demo", "main")
		require.NoError(t, err)
		require.Equal(t, []record.PolicyUsage{{Policy: "checker", Calls: 2, Tokens: 2}, {Policy: "writer", Calls: 2, Tokens: 5}}, got)
		got, err = s.PolicyUsage(t.Context(), "demo", "critic")
		require.NoError(t, err)
		require.Empty(t, got)
	})
}
