package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

func TestSignalsReachTheCallsThatEarnedThem(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t).credited(spec.Credit{
		Assignment: "discounted", Discount: 0.5, Mean: "none", Std: "none",
		Signals: map[string]float64{spec.SignalToolError: -0.25, spec.SignalEmitted: 2},
	})
	b, got := w.made(w.record(1, []entry{
		{
			says: []string{"solo: a", "solo: b", "solo: c"}, reward: 1, spans: []record.Span{failedTool(1)},
			rewards: []record.Reward{{Name: "hint", Value: 0.5, CallID: callID(2)}},
		},
		{says: []string{"solo: a"}, reward: 0},
	}))
	calls := given(b)
	// The last call earned 1 by the grader and 2·0.5 by its hint, the one before it −0.25.
	require.Equal(t, map[int32][]float32{2: {2, 2}, 1: {0.75, 0.75}, 0: {0.375, 0.375}}, calls[0])
	require.Equal(t, map[int32][]float32{0: {0, 0}}, calls[1])
	for name, want := range map[string]float64{
		"signals/tool_error": 1, "signals/tool_error_sum": -0.25, "signals/emitted": 1, "signals/emitted_sum": 1,
		"reward/mean": 0.5, "reward/min": 0, "reward/max": 1,
		"advantage/mean": (2 + 0.75 + 0.375) / 4, "advantage/min": 0, "advantage/max": 2, "advantage/zero_fraction": 0.25,
		"batch/tokens_unmerged": 4 * 7, "batch/trained_tokens": 8,
	} {
		require.InDelta(t, want, got.Metrics[name], 1e-9, name)
	}
	require.NotContains(t, got.Metrics, "signals/exception", "only what has a weight is counted")
}

func TestEqualStatesOfAGroupAreCompared(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t).credited(spec.Credit{Assignment: "gigpo", Discount: 0.5, Std: "none"})
	b, _ := w.made(w.record(1, []entry{
		{says: []string{"solo: hall", "solo: cave"}, reward: 1},
		{says: []string{"solo: hall", "solo: hut"}, reward: 0},
	}))
	calls := given(b)
	require.Equal(t, map[int32][]float32{0: {0.75, 0.75}, 1: {0.5, 0.5}}, calls[0], "in the hall half of the discounted rewards differ by 0.25")
	require.Equal(t, map[int32][]float32{0: {-0.75, -0.75}, 1: {-0.5, -0.5}}, calls[1])
}

func TestNamedRewardsAndShapingAreTold(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t).credited(spec.Credit{
		Mean: "none", Std: "none", Rewards: map[string]float64{"final": 1, "style": 0.5}, FormatPenalty: 0,
		Overlong: &spec.Overlong{Tokens: 6, Buffer: 4, Penalty: 1},
	})
	b, got := w.made(w.record(1, []entry{
		{says: []string{"solo: a"}, reward: 1, rewards: []record.Reward{{Name: "style", Value: 2}}},
		{says: []string{"solo: a", "solo: b"}, reward: 1, rewards: []record.Reward{{Name: "style", Value: 0}}},
		{says: []string{"solo: a"}, reward: -0.5, outcome: record.AgentFailed},
	}))
	calls := given(b)
	require.Equal(t, []float32{1 + 1 - 0.25, 1.75}, calls[0][0], "three tokens of at most two without a penalty")
	require.Equal(t, []float32{0, 0}, calls[1][0], "six tokens cost all of it")
	require.Equal(t, []float32{-0.5 - 0.25 - 0.25, -1}, calls[2][0], "a failed agent has the failure reward for all that it did not post")
	require.InDelta(t, 1, b.Trajectories[1].Reward, 0, "the batch has the reward that is on record")
	require.InDelta(t, 0.5, got.Metrics["reward/style/mean"], 1e-12)
	require.InDelta(t, 2, got.Metrics["reward/style/max"], 0)
	require.InDelta(t, 0.5, got.Metrics["reward/mean"], 1e-12)
}

// Half of the attempts at the door go left and succeed. Once a step has shown that,
// the call that went left gets the credit, and the one after it none.
func TestValueDifferenceLearnsFromTheStepsBefore(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t).credited(spec.Credit{Assignment: "value_difference"})
	step := func(n int) activities.AssignCreditInput {
		var groups [][]entry
		for range 8 {
			groups = append(groups, []entry{
				{says: []string{"solo: door", "solo: left"}, reward: 1},
				{says: []string{"solo: door", "solo: right"}, reward: 0},
			})
		}
		return w.record(n, groups...)
	}
	credited := func(n int) (turn, after float32) {
		b, _ := w.made(step(n))
		calls := given(b)
		return calls[0][0][0], calls[0][1][0]
	}
	turn, after := credited(1)
	require.Greater(t, turn, after, "already the other groups of a step tell")
	later, rest := credited(2)
	require.InDelta(t, 0.5, later, 0.15)
	require.InDelta(t, 0, rest, 0.15)
	require.NotEqual(t, turn, later, "the step before has told more")
	require.InDelta(t, 0.5, turn+after, 0.1, "together they make what the attempt came to")
}

func TestValueDifferenceNeedsOtherGroups(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t).credited(spec.Credit{Assignment: "value_difference"})
	got, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, w.record(1, two(1, 0)))
	require.NoError(t, err)
	require.Contains(t, got.Idle, "fewer than two groups have calls")
}

func TestTheSameRecordsMakeTheSameBatch(t *testing.T) {
	t.Parallel()
	for _, c := range []spec.Credit{
		{Assignment: "gigpo", Signals: map[string]float64{spec.SignalToolError: -0.1, spec.SignalRepeatedCall: -0.3, spec.SignalRecovered: 0.7}},
		{Assignment: "value_difference", PerAgent: false},
	} {
		digests := map[string]bool{}
		for range 2 { // another store, another run of the same name
			w := newTestEnv(t).credited(c)
			in := w.record(1, []entry{
				{says: []string{"solo: a", "solo: b"}, reward: 1, spans: []record.Span{failedTool(0)}}, {says: []string{"solo: a"}, reward: 0.1},
			}, two(0.2, 0.7, 1))
			_, first := w.made(in)
			_, again := w.made(in)
			require.Equal(t, first, again)
			digests[first.Batch] = true
		}
		require.Len(t, digests, 1)
	}
}
