package store_test

import (
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/metrics"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestRowsAreCountedOnceHoweverOftenTheyAreWritten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		m := metrics.New("")
		s.Measure(m)
		first := call(begin(t, s, rollout(0, 0)), 0, []int32{1, 2, 3}, []int32{4, 5})
		for range 2 {
			require.NoError(t, s.AppendCall(t.Context(), &first))
		}
		a := begin(t, s, rollout(0, 0)) // the attempt before it is replaced
		replayed := call(a, 0, []int32{1, 2, 3}, []int32{4, 5})
		replayed.ReplayedFrom = 1
		reward := 0.5
		for range 2 {
			require.NoError(t, s.AppendCall(t.Context(), &replayed))
			require.NoError(t, s.AddRefusal(t.Context(), record.Refusal{Address: a, Code: "call_limit", Last: noon}))
		}
		for range 2 {
			require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &reward}))
		}
		graded := begin(t, s, rollout(0, 1))
		require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: graded, Outcome: record.OutcomeCompleted}))
		for range 2 {
			require.NoError(t, s.PutReward(t.Context(), record.Reward{Address: graded, Name: "final", Value: 2, Source: store.Grader}))
			require.NoError(t, s.PutReward(t.Context(), record.Reward{Address: graded, Name: "style", Value: 7, Source: store.Grader}))
		}
		require.Error(t, s.PutReward(t.Context(), record.Reward{Address: graded, Name: "late", Value: 2}))

		_, _, err := s.CreateRun(t.Context(), record.Run{Name: "demo", Spec: []byte("{}")})
		require.NoError(t, err)
		left := begin(t, s, rollout(1, 0))
		for range 2 {
			require.NoError(t, s.FinishRun(t.Context(), left.Run, record.Failed, nil))
		}

		all, err := m.Registry().Gather()
		require.NoError(t, err)
		var text strings.Builder
		for _, family := range all {
			_, err := expfmt.MetricFamilyToText(&text, family)
			require.NoError(t, err)
		}
		for _, line := range []string{
			`fulgurite_call_seconds_count{api="chat"} 1`,
			`fulgurite_replayed_calls_total 1`,
			`fulgurite_refused_calls_total{code="call_limit"} 1`,
			`fulgurite_rollouts_total{kind="train",outcome="completed"} 2`,
			`fulgurite_rollouts_total{kind="train",outcome="infra_fault"} 1`,
			`fulgurite_reward_count{kind="train"} 2`,
			`fulgurite_reward_sum{kind="train"} 2.5`,
			`fulgurite_store_write_failures_total 1`,
		} {
			require.Contains(t, text.String(), "\n"+line+"\n")
		}
	})
}
