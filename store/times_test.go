package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestTimesSayWhenAttemptsAndTheirCallsWere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		lost, done := begin(t, s, rollout(1, 0)), begin(t, s, rollout(1, 1))
		first := call(done, 0, []int32{1}, []int32{2})
		first.Started, first.Duration = noon, time.Minute
		first.Sampling = record.Sampling{Queued: time.Second, Prefill: 2 * time.Second, Decode: 3 * time.Second, Shared: 4}
		appendCalls(t, s, first)
		// A gateway that samples again needs another time for the same tokens.
		first.Sampling.Decode = time.Hour
		require.NoError(t, s.AppendCall(t.Context(), &first))
		require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: done, Outcome: record.OutcomeCompleted, Returned: noon.Add(time.Hour), Ended: noon.Add(2 * time.Hour)}))
		require.NoError(t, s.PutReward(t.Context(), record.Reward{Address: done, Name: "final", Value: 1, Source: store.Grader, Emitted: noon.Add(3 * time.Hour)}))

		got, err := s.Times(t.Context(), "demo", "main", lost.Kind, lost.Step)
		require.NoError(t, err)
		for i := range got {
			require.WithinDuration(t, time.Now(), got[i].Begun, time.Minute)
			got[i].Begun = time.Time{}
		}
		requireEqual(t, []record.AttemptTimes{
			{Address: lost},
			{
				Address: done, Outcome: record.OutcomeCompleted, Returned: noon.Add(time.Hour), Ended: noon.Add(2 * time.Hour), Graded: noon.Add(3 * time.Hour),
				Calls: []record.CallTimes{{Started: noon, Duration: time.Minute, Sampling: record.Sampling{Queued: time.Second, Prefill: 2 * time.Second, Decode: 3 * time.Second, Shared: 4}}},
			},
		}, got)
		calls, err := s.Calls(t.Context(), done)
		require.NoError(t, err)
		require.Equal(t, got[1].Calls[0].Sampling, calls[0].Sampling)
		none, err := s.Times(t.Context(), "demo", "main", lost.Kind, lost.Step+1)
		require.NoError(t, err)
		require.Empty(t, none)
	})
}

func TestTheTimesOfBatchesAndVersionsAreKept(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		batch := record.Batch{Run: "demo", Policy: "main", Step: 1, Digest: "b", Begun: noon, At: noon.Add(time.Second)}
		stored, _, err := s.PutBatch(t.Context(), batch)
		require.NoError(t, err)
		requireEqual(t, batch, stored)
		read, err := s.Batch(t.Context(), "demo", "main", 1)
		require.NoError(t, err)
		require.Equal(t, []time.Time{batch.Begun, batch.At}, []time.Time{read.Begun, read.At})
		v := model.Version{VersionID: model.VersionID{Run: "demo", Policy: "main", Number: 1}, Begun: noon, Created: noon.Add(time.Hour), Work: model.Work{Load: 1, Score: 2, Gradient: 3, Optimizer: 4, Save: 5}}
		_, _, err = s.PutVersion(t.Context(), v)
		require.NoError(t, err)
		made, err := s.Version(t.Context(), v.VersionID)
		require.NoError(t, err)
		require.Equal(t, v.Work, made.Work)
		require.Equal(t, v.Begun, made.Begun)
	})
}
