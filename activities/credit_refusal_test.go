package activities_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/update"
)

// If a step can't be given credit, the error names the rollout. There is no batch, and
// another try would not help.
func TestWhatCannotBeGivenCreditIsRefusedByName(t *testing.T) {
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
		"named beyond the limit": {named, []entry{ok, {says: ok.says, rewards: []trace.Reward{{Name: "style", Value: -2e6}}}}, []string{"reward beyond grader.limit", `"style"`}},
		"missing":                {named, []entry{{says: ok.says, rewards: []trace.Reward{{Name: "style", Value: 1}}}, ok}, []string{"missing reward", "style", "demo/train-1/0/1/1"}},
		"given to a call":        {named, []entry{{says: ok.says, rewards: []trace.Reward{{Name: "style", Value: 1, CallID: callID(0)}}}, ok}, []string{"missing reward", "demo/train-1/0/0/1"}},
		"never ended":            {spec.Credit{}, []entry{ok, {says: ok.says, open: true}}, []string{"attempt does not count", "demo/train-1/0/1/1"}},
		"a fault":                {spec.Credit{}, []entry{ok, {says: ok.says, outcome: trace.InfraFault}}, []string{"attempt does not count", "infra_fault"}},
		"no call":                {spec.Credit{}, []entry{{reward: 1}, {}}, []string{update.ErrNothingRecorded.Error(), "base URL"}},
		"nobody trained":         {spec.Credit{TrainAgents: "sol"}, []entry{ok, {says: []string{"duo: a"}}}, []string{"no call of an agent that is trained", `"sol"`, "duo, solo", "demo/train-1/0/0/1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t).credited(c.credit)
			// Not through Temporal, whose JSON has no such numbers.
			_, err := w.coordinator.AssignCredit(t.Context(), w.record(1, c.group))
			requireFinal(t, err, c.words...)
			_, err = w.store.Batch(t.Context(), "demo", model.DefaultPolicy, 1)
			require.ErrorIs(t, err, trace.ErrNotFound)
		})
	}
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
	b, _ := w.made(w.record(1, []entry{{says: []string{"solo: a"}, reward: 1}, {reward: 0}, {reward: 0, outcome: trace.AgentFailed}}, two(1), nil))
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
	group := []entry{{says: []string{"solo: a"}, reward: 1}, {says: []string{"solo: a"}, reward: -5, outcome: trace.AgentFailed}}
	_, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, w.record(1, group))
	require.NoError(t, err)
}
