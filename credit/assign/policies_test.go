package assign_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/assign"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// answered returns an attempt whose calls were answered by these policies. verdict is its second
// reward.
func answered(group, i int, reward, verdict float64, policies ...string) assign.Sample {
	states := make([]string, len(policies))
	for k := range states {
		states[k] = "state"
	}
	s := sample(group, i, reward, states...)
	for k, policy := range policies {
		s.History[k].Policy = policy
	}
	s.Rewards = []record.Reward{{Address: s.Address, Name: "verdict", Value: verdict}}
	return s
}

// answeredGroups returns groups in which the final reward depends on the writer alone, and the other
// one on the checker alone.
func answeredGroups() [][]assign.Sample {
	return [][]assign.Sample{
		{answered(0, 0, 1, 0, "writer", "checker"), answered(0, 1, 0, 1, "writer", "checker", "writer")},
		{answered(1, 0, 1, 1, "writer", "checker"), answered(1, 1, 1, 0, "writer", "checker")},
	}
}

// withPolicies returns a spec of these policies; the checker's reward is the verdict.
func withPolicies(c spec.Credit, frozen ...string) spec.Spec {
	s := spec.Spec{Credit: c, Policies: map[string]spec.Policy{
		"writer": {}, "checker": {Credit: &spec.Credit{Rewards: map[string]float64{"verdict": 1}}}, "third": {},
	}}
	for _, name := range frozen {
		s.Policies[name] = spec.Policy{Frozen: true}
	}
	return s.WithDefaults()
}

func TestEachPolicyHasTheCreditOfItsOwnReward(t *testing.T) {
	t.Parallel()
	s := withPolicies(spec.Credit{Std: credit.None})
	trajectories, given, err := assign.Advantages(s, nil, answeredGroups())
	require.NoError(t, err)
	require.Equal(t, [][][]float64{
		{{0.5, -0.5}, {-0.5, 0.5, -0.5}},
		{{0, 0.5}, {0, -0.5}},
	}, given.Call)
	require.Equal(t, [][]float64{{0, 0}, {0.25, -0.25}}, given.Trajectory, "the mean of those of both; the third had no call")
	for _, samples := range trajectories {
		for _, one := range samples {
			for _, c := range one.Calls {
				require.False(t, c.Skip)
			}
		}
	}
	for _, name := range []string{"writer", "checker"} {
		alone, one, err := assign.Advantages(s.ForPolicy(name), nil, answeredGroups())
		require.NoError(t, err)
		for g, samples := range alone {
			for i, trajectory := range samples {
				for k, c := range trajectory.Calls {
					if !c.Skip {
						require.Equal(t, one.Call[g][i][k], given.Call[g][i][k], "%s alone", name)
					}
				}
			}
		}
	}
}

func TestTheCallsOfAFrozenPolicyAreNotTrained(t *testing.T) {
	t.Parallel()
	trajectories, given, err := assign.Advantages(withPolicies(spec.Credit{Std: credit.None}, "writer"), nil, answeredGroups())
	require.NoError(t, err)
	require.True(t, trajectories[0][1].Calls[0].Skip)
	require.False(t, trajectories[0][1].Calls[1].Skip)
	require.Equal(t, []float64{0, 0.5, 0}, given.Call[0][1])
}

func TestPoliciesWithoutACallHaveNothingToTrain(t *testing.T) {
	t.Parallel()
	groups := [][]assign.Sample{{answered(0, 0, 1, 0, "writer"), answered(0, 1, 0, 0, "writer")}}
	_, given, err := assign.Advantages(withPolicies(spec.Credit{Std: credit.None}), nil, groups)
	require.NoError(t, err)
	require.Equal(t, [][][]float64{{{0.5}, {-0.5}}}, given.Call)
	_, _, err = assign.Advantages(withPolicies(spec.Credit{}, "writer"), nil, groups)
	require.True(t, assign.NothingToTrain(err))
	require.ErrorContains(t, err, "policy checker answered none of the calls, for example in attempt r/train-1/0/0/1")
}

func TestAGroupIsFlatIfItTeachesNoPolicy(t *testing.T) {
	t.Parallel()
	groups := append(answeredGroups(), []assign.Sample{answered(2, 0, 1, 1, "writer", "checker"), answered(2, 1, 1, 1, "writer", "checker")})
	flat, err := assign.FlatGroups(withPolicies(spec.Credit{}), groups)
	require.NoError(t, err)
	require.Equal(t, []bool{false, false, true}, flat)
	flat, err = assign.FlatGroups(withPolicies(spec.Credit{}, "checker"), groups)
	require.NoError(t, err)
	require.Equal(t, []bool{false, true, true}, flat, "the second group taught the checker alone")
}

func TestRunningBaselinesAreOfEachPolicy(t *testing.T) {
	t.Parallel()
	s := withPolicies(spec.Credit{Mean: credit.Running})
	_, given, err := assign.Advantages(s, nil, answeredGroups())
	require.NoError(t, err)
	for _, name := range []string{"writer", "checker"} {
		_, alone, err := assign.Advantages(s.ForPolicy(name), nil, answeredGroups())
		require.NoError(t, err)
		require.NotEmpty(t, alone.Baselines)
		for of, v := range alone.Baselines {
			require.Equal(t, v, given.Baselines[name+"/"+of], name)
		}
	}
	_, next, err := assign.Advantages(s, given.Baselines, answeredGroups())
	require.NoError(t, err)
	require.NotEqual(t, given.Call, next.Call, "the step after continues from the baselines")
}

func TestEstimatesAreLearnedByEachPolicyFromItsOwnCalls(t *testing.T) {
	t.Parallel()
	s := withPolicies(spec.Credit{Assignment: credit.ValueDifference})
	var groups [][]assign.Sample
	for g := range 8 { // the final reward is always 1, and the verdict always 0
		groups = append(groups, []assign.Sample{answered(g, 0, 1, 0, "writer", "checker"), answered(g, 1, 1, 0, "writer", "checker")})
	}
	require.True(t, assign.NeedsEstimates(s))
	require.NoError(t, assign.Estimate(s, nil, groups))
	for _, samples := range groups {
		require.InDelta(t, 1, samples[0].Before[0], 1e-6)
		require.InDelta(t, 0, samples[0].Before[1], 1e-6)
	}
}

func TestAnAttemptThatOnePolicyCannotBeGivenCreditForIsAFault(t *testing.T) {
	t.Parallel()
	groups := answeredGroups()
	groups[1][0].Rewards = nil // the checker's reward is missing
	faults, err := assign.Faults(withPolicies(spec.Credit{}), groups)
	require.NoError(t, err)
	require.Len(t, faults, 1)
	require.ErrorIs(t, faults[1], credit.ErrMissingReward)
	faults, err = assign.Faults(withPolicies(spec.Credit{}, "checker"), groups)
	require.NoError(t, err)
	require.Empty(t, faults)
}

func TestAPolicyThatCanLearnNothingDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	s := withPolicies(spec.Credit{Std: credit.None})
	s.Policies["checker"] = spec.Policy{Credit: &spec.Credit{Assignment: credit.ValueDifference, Rewards: map[string]float64{"verdict": 1}}}
	groups := [][]assign.Sample{
		{answered(0, 0, 1, 0, "writer", "checker"), answered(0, 1, 0, 1, "writer", "checker")},
		{answered(1, 0, 1, 1, "writer"), answered(1, 1, 0, 0, "writer")}, // the checker was asked in one group alone
	}
	require.NoError(t, assign.Estimate(s.WithDefaults(), nil, groups))
	trajectories, given, err := assign.Advantages(s.WithDefaults(), nil, groups)
	require.NoError(t, err)
	require.Equal(t, [][][]float64{{{0.5, 0}, {-0.5, 0}}, {{0.5}, {-0.5}}}, given.Call)
	require.True(t, trajectories[0][0].Calls[1].Skip, "it has nothing to train")
}

func TestAReplyThatCannotBeReadCostsItsOwnPolicyAlone(t *testing.T) {
	t.Parallel()
	s := withPolicies(spec.Credit{Std: credit.None, FormatPenalty: 1})
	groups := [][]assign.Sample{{answered(0, 0, 1, 1, "writer", "checker"), answered(0, 1, 1, 1, "writer", "checker")}}
	groups[0][1].History[0].ParseError = "no call"
	s.Policies["checker"] = spec.Policy{}
	_, given, err := assign.Advantages(s, nil, groups)
	require.NoError(t, err)
	require.Equal(t, [][][]float64{{{0.5, 0}, {-0.5, 0}}}, given.Call)
}

// batches has the batch of step 1.
type batches struct{ entry record.Batch }

func (b batches) Batch(context.Context, string, string, int) (record.Batch, error) {
	return b.entry, nil
}

type blob []byte

func (b blob) Get(context.Context, string) ([]byte, error) { return b, nil }

func TestTheBaselinesOfOnePolicyAreReadBack(t *testing.T) {
	t.Parallel()
	s := withPolicies(spec.Credit{})
	s.Policies["checker"] = spec.Policy{Credit: &spec.Credit{Mean: credit.Running}}
	b := model.Batch{Policy: "main", Step: 1, VocabSize: 9, Baselines: map[string]float64{"checker/*": 0.5}}
	b.Count()
	data, err := hf.EncodeBatch(b)
	require.NoError(t, err)
	source := assign.Source{Batches: batches{}, Blobs: blob(data), Run: "r", Policy: "main"}
	got, err := source.Baselines(t.Context(), s.WithDefaults(), 2)
	require.NoError(t, err)
	require.Equal(t, b.Baselines, got)
	got, err = source.Baselines(t.Context(), withPolicies(spec.Credit{}), 2)
	require.NoError(t, err)
	require.Nil(t, got)
}
