package assign_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/assign"
	"github.com/fulgurite/fulgurite/credit/signals"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// sample returns an attempt whose calls were made in these states.
func sample(group, i int, reward float64, states ...string) assign.Sample {
	var s assign.Sample
	s.Address = record.Address{RolloutID: record.RolloutID{Run: "r", Kind: record.Train, Step: 1, Task: group, Sample: i}, Attempt: 1}
	s.Outcome, s.Reward = record.OutcomeCompleted, &reward
	for seq, state := range states {
		prompt := []int32{int32(len(state)), int32(state[0]), int32(seq)}
		s.History = append(s.History, record.Call{
			Seq: seq, Agent: "solo", Prompt: prompt, Completion: []int32{1, 2}, Untrained: []bool{false, true},
		})
		s.Calls = append(s.Calls, signals.Call{Agent: "solo", State: state})
	}
	return s
}

// corridor returns groups in which going left is rewarded.
func corridor(groups int) [][]assign.Sample {
	var all [][]assign.Sample
	for g := range groups {
		all = append(all, []assign.Sample{
			sample(g, 0, 1, "door", "left"), sample(g, 1, 0, "door", "right"), sample(g, 2, 0, "door", "right"), sample(g, 3, 1, "door", "left"),
		})
	}
	return all
}

func defaults(c spec.Credit) spec.Spec { return spec.Spec{Credit: c}.WithDefaults() }

func TestEstimatesKnowWhatStatesAreWorth(t *testing.T) {
	t.Parallel()
	groups := corridor(12)
	require.NoError(t, assign.Estimate(defaults(spec.Credit{Assignment: "value_difference"}), nil, groups))
	for _, samples := range groups {
		require.InDelta(t, 0.5, samples[0].Before[0], 0.1)
		require.InDelta(t, 1, samples[0].Before[1], 0.1)
		require.InDelta(t, 0, samples[1].Before[1], 0.1)
	}
}

func TestNoEstimateHasSeenTheOutcomesOfItsOwnGroup(t *testing.T) {
	t.Parallel()
	s := defaults(spec.Credit{Assignment: "value_difference"})
	before := func(own float64) [][]float64 {
		groups := corridor(6)
		var out [][]float64
		for i := range groups[2] {
			groups[2][i].Reward = &own
		}
		require.NoError(t, assign.Estimate(s, corridor(3), groups))
		for _, one := range groups[2] {
			out = append(out, one.Before)
		}
		return out
	}
	require.Equal(t, before(0), before(100))
}

func TestEarlierStepsSpeakToo(t *testing.T) {
	t.Parallel()
	s := defaults(spec.Credit{Assignment: "value_difference"})
	alone := corridor(1)
	require.ErrorIs(t, assign.Estimate(s, nil, alone), credit.ErrEstimate)
	require.NoError(t, assign.Estimate(s, corridor(12), alone))
	require.Greater(t, alone[0][0].Before[1]-alone[0][1].Before[1], 0.8)
	require.Nil(t, corridor(1)[0][0].Before)
}

func TestTrainedAgentsAreMatchedWhole(t *testing.T) {
	t.Parallel()
	groups := [][]assign.Sample{{sample(0, 0, 1, "a", "b", "c")}}
	for k, name := range []string{"write", "rewrite", "writer"} {
		groups[0][0].Calls[k].Agent = name
	}
	got, err := assign.Trajectories(defaults(spec.Credit{TrainAgents: "write|rewrite"}), groups)
	require.NoError(t, err)
	var skipped []bool
	for _, c := range got[0][0].Calls {
		skipped = append(skipped, c.Skip)
	}
	require.Equal(t, []bool{false, false, true}, skipped)
	require.Equal(t, 1, got[0][0].Calls[0].Tokens, "what had no alternative is no trained token")
	_, err = assign.Trajectories(defaults(spec.Credit{TrainAgents: "read"}), groups)
	require.ErrorIs(t, err, assign.ErrAgents)
}

func TestAnAttemptWithoutARewardOnRecordIsRefused(t *testing.T) {
	t.Parallel()
	groups := [][]assign.Sample{{sample(0, 0, 1, "a")}}
	groups[0][0].Reward = nil
	_, err := assign.Trajectories(defaults(spec.Credit{}), groups)
	require.ErrorIs(t, err, credit.ErrMissingReward)
	require.ErrorContains(t, err, "r/train-1/0/0/1")
}

func TestRepliesThatCannotBeReadCostOnce(t *testing.T) {
	t.Parallel()
	s := defaults(spec.Credit{FormatPenalty: 0.25})
	one := sample(0, 0, 1, "a", "b")
	one.History[0].ParseError, one.History[1].ParseError = "no", "no"
	got, err := assign.Trajectories(s, [][]assign.Sample{{one, sample(0, 1, 1, "a")}})
	require.NoError(t, err)
	require.InDelta(t, 0.75, got[0][0].Rewards[credit.Final], 0)
	require.InDelta(t, 1, got[0][1].Rewards[credit.Final], 0)
}

func TestRepliesThatWereCutOffAreMaskedIfTheSpecSaysSo(t *testing.T) {
	t.Parallel()
	group := func() [][]assign.Sample {
		g := [][]assign.Sample{{sample(0, 0, 1, "a", "b"), sample(0, 1, 0, "a"), sample(0, 2, 0, "a", "b")}}
		g[0][0].History[1].Finish, g[0][1].History[0].Finish = record.FinishLength, record.FinishLength
		g[0][2].Calls[1].Agent, g[0][2].History[1].Finish = "other", record.FinishLength
		return g
	}
	advantages := func(c spec.Credit) ([][]float64, [][]bool) {
		trajectories, given, err := assign.Advantages(defaults(c), nil, group())
		require.NoError(t, err)
		masked := make([][]bool, len(trajectories[0]))
		for i, one := range trajectories[0] {
			for _, call := range one.Calls {
				masked[i] = append(masked[i], call.Masked)
			}
		}
		return given.Call[0], masked
	}
	// The mean of 1, 0, 0 is 1/3, also where the second attempt has nothing to train.
	got, masked := advantages(spec.Credit{Truncated: "mask", Std: "none", TrainAgents: "solo"})
	require.Equal(t, [][]bool{{false, true}, {true}, {false, false}}, masked)
	require.InDeltaSlice(t, []float64{2.0 / 3, 0}, got[0], 1e-12)
	require.Equal(t, []float64{0}, got[1])
	require.InDeltaSlice(t, []float64{-1.0 / 3, 0}, got[2], 1e-12)
	for _, of := range []string{"", "train", "fail"} {
		got, masked = advantages(spec.Credit{Truncated: of, Std: "none", TrainAgents: "solo"})
		require.Equal(t, [][]bool{{false, false}, {false}, {false, false}}, masked, of)
		require.InDeltaSlice(t, []float64{2.0 / 3, 2.0 / 3}, got[0], 1e-12)
		require.InDeltaSlice(t, []float64{-1.0 / 3}, got[1], 1e-12)
	}
}

func TestAnAttemptThatFailedBecauseAReplyWasCutOffHasNoOtherReward(t *testing.T) {
	t.Parallel()
	of := defaults(spec.Credit{Rewards: map[string]float64{"final": 1, "style": 1}, Truncated: "fail"})
	of.Agent.FailureReward = -2
	failed := func(failure string) map[string]float64 {
		one := sample(0, 0, -2, "a")
		one.Outcome, one.Failure, one.Rewards = record.AgentFailed, failure, []record.Reward{{Address: one.Address, Name: "style", Value: 5}}
		got, err := assign.Trajectories(of, [][]assign.Sample{{one}})
		require.NoError(t, err)
		return got[0][0].Rewards
	}
	require.Equal(t, map[string]float64{"final": -2, "style": -2}, failed(record.FailureTruncated))
	require.Equal(t, map[string]float64{"final": -2, "style": 5}, failed("exit"))
}

// The spec of a run from an old release has no values for keys that were added later.
func TestThePlanOfAnOldSpecIsTheOldOne(t *testing.T) {
	t.Parallel()
	old := spec.Credit{Assignment: "discounted", Discount: 0.9, Mean: "group", Std: "batch", LeaveOneOut: true}
	want := credit.Plan{
		Normalization: credit.Normalization{Mean: credit.Group, Std: credit.Batch, LeaveOneOut: true}, Assignment: credit.Discounted, Discount: 0.9,
	}
	require.Equal(t, want, old.Plan())
	require.False(t, assign.NeedsSignals(spec.Spec{Credit: old}))
	_, err := spec.Credit{Whiten: "batch", Combine: "separate", Tokens: "uniform"}.Plan().Advantages([][]credit.Trajectory{{}})
	require.ErrorIs(t, err, credit.ErrNothingToTrain)
}

func TestEveryPartOfAPlanIsTheSpecs(t *testing.T) {
	t.Parallel()
	got := (spec.Credit{
		Assignment: "gigpo", Tokens: "uniform", Mean: "group", Std: "mean", LeaveOneOut: true, Discount: 0.9, Lambda: 0.8, StepWeight: 0.7,
		PerAgent: true, Whiten: "batch", Rewards: map[string]float64{"final": 2}, Combine: "separate",
	}).Plan()
	require.Equal(t, credit.Plan{
		Normalization: credit.Normalization{Mean: credit.Group, Std: credit.ByMean, LeaveOneOut: true},
		Assignment:    credit.GiGPO, Tokens: credit.Uniform, Discount: 0.9, Lambda: 0.8, StepWeight: 0.7,
		PerAgent: true, Whiten: true, Rewards: map[string]float64{"final": 2}, Separate: true,
	}, got)
	require.Equal(t, credit.Plan{Assignment: "judge", Tokens: credit.GAE}, spec.Credit{Assignment: "judge", Tokens: "gae", Whiten: "none", Combine: "sum"}.Plan())
}

func TestWhatACreditNeedsIsRead(t *testing.T) {
	t.Parallel()
	for _, c := range []spec.Credit{
		{Assignment: "gigpo"}, {Assignment: "value_difference"}, {TrainAgents: "a"}, {PerAgent: true}, {Signals: map[string]float64{"recovered": 1}},
	} {
		require.True(t, assign.NeedsSignals(spec.Spec{Credit: c}), fmt.Sprint(c))
		require.Equal(t, c.Assignment == "value_difference", assign.NeedsEstimates(spec.Spec{Credit: c}))
	}
}
