package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// Each agent is compared with its own results in earlier steps. The batch of the step
// before has them, so a worker that starts later continues from there.
func TestAnAgentIsComparedWithItsOwnStepsBefore(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t).credited(spec.Credit{Mean: "running", PerAgent: true, Signals: map[string]float64{"emitted": 1}})
	emitted := func(value float64) []record.Reward {
		return []record.Reward{{Name: "part", CallID: callID(1), Value: value}}
	}
	groups := func() [][]entry {
		return [][]entry{{
			{says: []string{"first: a", "second: a"}, reward: 1, rewards: emitted(-2)},
			{says: []string{"first: a"}, reward: 0.5},
		}, {{says: []string{"first: a", "second: a"}, reward: 0, rewards: emitted(0.25)}}}
	}
	first, second := 0.0, 0.0 // by hand
	for step := 1; step <= 3; step++ {
		in := w.record(step, groups()...)
		b, got := w.made(in)
		require.InDelta(t, 1-first, given(b)[0][0][0], 1e-6)
		require.InDelta(t, 1-2-second, given(b)[0][1][0], 1e-6)
		require.InDelta(t, 0.5-first, given(b)[1][0][0], 1e-6)
		require.InDelta(t, 0-first, given(b)[2][0][0], 1e-6)
		require.InDelta(t, 0.25-second, given(b)[2][1][0], 1e-6)
		for _, r := range []float64{1, 0.5, 0} {
			first = 0.95*first + 0.05*r
		}
		for _, r := range []float64{1 - 2, 0.25} {
			second = 0.95*second + 0.05*r
		}
		require.InDelta(t, first, b.Baselines["agent first"], 1e-12)
		require.InDelta(t, second, b.Baselines["agent second"], 1e-12)
		require.InDelta(t, b.Baselines["all"], got.Metrics["batch/baseline"], 0)
		again, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, in)
		require.NoError(t, err)
		require.Equal(t, got, again, "assigned again, a step has the same bits")
	}
}

func TestARunningBaselineNeedsTheStepBefore(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t).credited(spec.Credit{Mean: "running"})
	_, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, w.record(2, two(1, 0)))
	require.ErrorContains(t, err, "read the running baselines: ")
}
