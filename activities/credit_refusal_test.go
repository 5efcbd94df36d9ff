package activities_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// A group with an attempt that can't be given credit is left out of the batch, by name and
// with the reason. The rest of the step is trained as if the group did not exist.
func TestWhatCannotBeGivenCreditIsLeftOutByName(t *testing.T) {
	t.Parallel()
	ok := entry{says: []string{"solo: a"}, reward: 1}
	named := spec.Credit{Rewards: map[string]float64{"final": 1, "style": 1}}
	for name, c := range map[string]struct {
		credit spec.Credit
		group  []entry
		words  []string
	}{
		"NaN":                    {spec.Credit{}, []entry{ok, {says: ok.says, reward: math.NaN()}}, []string{"bad reward", "demo/train-1/0/1/1", "NaN"}},
		"infinite":               {spec.Credit{}, []entry{ok, {says: ok.says, reward: math.Inf(-1)}}, []string{"demo/train-1/0/1/1", "-Inf"}},
		"beyond the limit":       {spec.Credit{}, []entry{ok, {says: ok.says, reward: 2e6}}, []string{"reward beyond grader.limit", "demo/train-1/0/1/1", "2e+06"}},
		"named beyond the limit": {named, []entry{ok, {says: ok.says, rewards: []record.Reward{{Name: "style", Value: -2e6}}}}, []string{"reward beyond grader.limit", `"style"`}},
		"missing":                {named, []entry{{says: ok.says, rewards: []record.Reward{{Name: "style", Value: 1}}}, ok}, []string{"missing reward", "style", "demo/train-1/0/1/1"}},
		"given to a call":        {named, []entry{{says: ok.says, rewards: []record.Reward{{Name: "style", Value: 1, CallID: callID(0)}}}, ok}, []string{"missing reward", "demo/train-1/0/0/1"}},
		"never ended":            {spec.Credit{}, []entry{ok, {says: ok.says, open: true}}, []string{"attempt does not count", "demo/train-1/0/1/1"}},
		"a fault":                {spec.Credit{}, []entry{ok, {says: ok.says, outcome: record.InfraFault}}, []string{"attempt does not count", "infra_fault"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			style := []record.Reward{{Name: "style", Value: 0}}
			whole := []entry{{says: ok.says, reward: 1, rewards: style}, {says: []string{"solo: b"}, rewards: style}}
			w := newTestEnv(t).credited(c.credit)
			// Not through Temporal, whose JSON has no such numbers.
			got, err := w.coordinator.AssignCredit(t.Context(), w.record(1, c.group, whole))
			require.NoError(t, err)
			require.Empty(t, got.Idle)
			require.Len(t, got.LeftOut, 1)
			for _, word := range c.words {
				require.Contains(t, got.LeftOut[0], word)
			}
			require.InDelta(t, 1, got.Metrics["batch/left_out_groups"], 0)
			data, err := w.blobs.Get(t.Context(), got.Batch)
			require.NoError(t, err)
			b, err := hf.DecodeBatch(data)
			require.NoError(t, err)
			require.Len(t, b.Trajectories, 4)
			for i, of := range b.Trajectories {
				require.Equal(t, i < 2, of.LeftOut != "", i)
				require.Equal(t, i < 2, of.Trained == 0, i)
			}
			require.InDelta(t, 0, b.Trajectories[2].Advantage+b.Trajectories[3].Advantage, 1e-9)
			require.Positive(t, b.Trajectories[2].Advantage)
		})
	}
}

// A step in which nothing can be trained makes a version without an update, and says why.
func TestAStepWithoutATrainedCallMakesAVersionWithoutAnUpdate(t *testing.T) {
	t.Parallel()
	ok := entry{says: []string{"solo: a"}, reward: 1}
	for name, c := range map[string]struct {
		credit spec.Credit
		groups [][]entry
		words  []string
	}{
		"no call":        {spec.Credit{}, [][]entry{{{reward: 1}, {}}}, []string{"no model call was recorded in 2 rollouts", "base URL"}},
		"nobody trained": {spec.Credit{TrainAgents: "sol"}, [][]entry{{ok, {says: []string{"duo: a"}}}}, []string{"no call that is trained", `"sol"`, "duo, solo", "demo/train-1/0/0/1"}},
		"one group":      {spec.Credit{Assignment: "value_difference"}, [][]entry{{ok, {says: []string{"solo: b"}}}, {{}, {}}}, []string{"nothing to train", "two groups"}},
		"all left out":   {spec.Credit{}, [][]entry{{ok, {says: ok.says, outcome: record.InfraFault}}}, []string{"every group was left out"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t).credited(c.credit)
			_, err := do[activities.VersionResult](t, w.trainer().InitPolicy, initPolicy())
			require.NoError(t, err)
			got, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, w.record(1, c.groups...))
			require.NoError(t, err)
			for _, word := range c.words {
				require.Contains(t, got.Idle, word)
			}
			require.Zero(t, got.Metrics["batch/trained_tokens"])
			before, err := w.store.Version(t.Context(), model.VersionID{Run: "demo", Policy: model.DefaultPolicy})
			require.NoError(t, err)
			v, err := do[activities.VersionResult](t, w.trainer().TrainStep, trainStep(1, got.Batch))
			require.NoError(t, err)
			require.Equal(t, before.Weights, v.Weights)
			require.Zero(t, v.Metrics["train/updates"])
		})
	}
}

// A reward whose advantage no batch can hold takes its own group out, and no other.
func TestARewardTooLargeForABatchIsLeftOutByName(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	s.Grader.Limit, s.Credit = 1e300, spec.Credit{Std: "none"}
	w.prepare(s)
	in := w.record(1, two(1, 0), []entry{{says: []string{"solo: a"}, reward: 1e200}, {says: []string{"solo: b"}}})
	got, err := w.coordinator.AssignCredit(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, got.LeftOut, 1)
	require.Contains(t, got.LeftOut[0], "1e+200, of demo/train-1/1/0/1")
	require.Positive(t, got.Metrics["batch/trained_tokens"])
}

func TestGroupsWithoutARewardForEachAttemptAreRefused(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t).credited(spec.Credit{})
	in := w.record(1, two(1, 0))
	in.Groups[0].Rewards = in.Groups[0].Rewards[:1]
	_, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, in)
	requireFinal(t, err, "bad group", "task 0 has 2 attempts and 1 rewards")
}

func TestUnequalGroupsAndAttemptsWithoutCallsAreNoFault(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t).credited(spec.Credit{Std: "none"})
	b, _ := w.made(w.record(1, []entry{{says: []string{"solo: a"}, reward: 1}, {reward: 0}, {reward: 0, outcome: record.AgentFailed}}, two(1), nil))
	require.Len(t, b.Trajectories, 4)
	require.InDelta(t, 2.0/3, b.Trajectories[0].Advantage, 1e-12, "an attempt without a call is part of what others are compared with")
	require.Zero(t, b.Trajectories[1].Trained)
	require.Zero(t, b.Trajectories[3].Advantage, "a group of one teaches nothing")
}

func TestAFailureRewardBeyondTheLimitIsDeclared(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	s.Grader.Limit, s.Agent.FailureReward = 1, -5
	w.prepare(s)
	group := []entry{{says: []string{"solo: a"}, reward: 1}, {says: []string{"solo: a"}, reward: -5, outcome: record.AgentFailed}}
	_, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, w.record(1, group))
	require.NoError(t, err)
}
