package credit_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit"
)

// attempt returns a trajectory. Calls without tokens get one token.
func attempt(final float64, calls ...credit.Call) credit.Trajectory {
	for k := range calls {
		if calls[k].Tokens == 0 {
			calls[k].Tokens = 1
		}
	}
	return credit.Trajectory{Name: "demo/train-1/0/0/1", Rewards: map[string]float64{"final": final}, Calls: calls}
}

func group(samples ...credit.Trajectory) [][]credit.Trajectory { return [][]credit.Trajectory{samples} }

func TestWhatCannotBeTrainedOnIsRefusedByName(t *testing.T) {
	t.Parallel()
	const name = "demo/train-3/17/2/1"
	critic := credit.Plan{Assignment: credit.TurnGAE, Discount: 1, Lambda: 1}
	for what, c := range map[string]struct {
		plan credit.Plan
		bad  credit.Trajectory
		want error
		says string
	}{
		"a reward that is not a number": {credit.Plan{}, credit.Trajectory{Rewards: map[string]float64{"final": math.NaN()}}, credit.ErrReward, `reward "final"`},
		"an infinite reward":            {credit.Plan{}, credit.Trajectory{Rewards: map[string]float64{"final": math.Inf(-1)}}, credit.ErrReward, "-Inf"},
		"no final reward":               {credit.Plan{}, credit.Trajectory{Rewards: map[string]float64{"other": 1}}, credit.ErrMissingReward, `"final"`},
		"no reward of another name": {
			credit.Plan{Rewards: map[string]float64{"final": 1, "style": 1}}, attempt(1), credit.ErrMissingReward, `"style"`,
		},
		"a call that earned infinitely": {credit.Plan{}, attempt(1, credit.Call{}, credit.Call{Reward: math.Inf(1)}), credit.ErrReward, "call 1"},
		"fewer than no tokens":          {credit.Plan{}, attempt(1, credit.Call{Tokens: -1, Skip: true}), credit.ErrCall, "call 0"},
		"no values":                     {critic, attempt(1, credit.Call{Tokens: 2}), credit.ErrEstimate, "0 values for 2 tokens"},
		"values of other tokens":        {critic, attempt(1, credit.Call{Tokens: 1, Values: []float64{1, 2}}), credit.ErrEstimate, "2 values for 1 tokens"},
		"a value that is not a number":  {critic, attempt(1, credit.Call{Tokens: 2, Values: []float64{1, math.NaN()}}), credit.ErrEstimate, "token 1 of call 0"},
		"an estimate that is not a number": {
			credit.Plan{Assignment: credit.ValueDifference}, attempt(1, credit.Call{Before: math.NaN()}), credit.ErrEstimate, "call 0",
		},
		"a score that is not a number": {credit.Plan{Assignment: credit.Judge}, attempt(1, credit.Call{Judged: math.Inf(1)}), credit.ErrEstimate, "call 0"},
	} {
		c.bad.Name = name
		good := attempt(0, credit.Call{Tokens: 1, Values: []float64{0}})
		good.Rewards["style"] = 0
		_, err := c.plan.Advantages([][]credit.Trajectory{{good}, {c.bad}})
		require.ErrorIs(t, err, c.want, what)
		require.ErrorContains(t, err, name, what)
		require.ErrorContains(t, err, c.says, what)
	}
}

func TestABatchWithoutATrainedTokenIsRefused(t *testing.T) {
	t.Parallel()
	skipped := attempt(1, credit.Call{Skip: true, Tokens: 9})
	wordless := attempt(1, credit.Call{Tokens: 1})
	wordless.Calls[0].Tokens = 0
	for _, groups := range [][][]credit.Trajectory{nil, {{}}, group(attempt(1), attempt(0)), group(skipped, skipped), group(wordless)} {
		_, err := credit.Plan{}.Advantages(groups)
		require.ErrorIs(t, err, credit.ErrNothingToTrain)
		if len(groups) > 0 && len(groups[0]) > 0 {
			require.ErrorContains(t, err, groups[0][0].Name)
		}
	}
}

func TestPlansThatContradictThemselvesAreRefused(t *testing.T) {
	t.Parallel()
	_, err := credit.Plan{Assignment: "guess"}.Advantages(group(attempt(1, credit.Call{})))
	require.ErrorIs(t, err, credit.ErrAssignment)
	for _, bad := range []credit.Plan{
		{Tokens: "some"},
		{Tokens: credit.GAE, Assignment: credit.LastCall},
		{Tokens: credit.GAE, Normalization: grpo},
		{Assignment: credit.TurnGAE, Normalization: credit.Normalization{Mean: credit.Batch}},
		{Assignment: credit.ValueDifference, Normalization: credit.Normalization{Std: credit.Group}},
		{Assignment: credit.ValueDifference, Separate: true},
		{Normalization: credit.Normalization{Mean: credit.ByMean}},
		{Normalization: credit.Normalization{Std: "most"}},
		{Discount: math.NaN()},
		{Rewards: map[string]float64{"final": math.Inf(1)}},
	} {
		_, err := bad.Advantages(group(attempt(1, credit.Call{Values: []float64{0}})))
		require.ErrorIs(t, err, credit.ErrPlan, "%+v", bad)
	}
}

func TestRewardsThatOverflowAreRefused(t *testing.T) {
	t.Parallel()
	_, err := credit.Plan{Normalization: credit.Normalization{Mean: credit.Group}}.Advantages(group(
		attempt(1e308, credit.Call{}), attempt(1e308, credit.Call{}), attempt(-1e308, credit.Call{})))
	require.ErrorIs(t, err, credit.ErrReward)
	require.ErrorContains(t, err, "demo/train-1/0/0/1")
}

// An attempt without calls is one of its group's outcomes. An attempt in which only other
// agents made calls says nothing about the agent that is trained.
func TestAnAttemptWithoutCallsCountsAndOneOfOtherAgentsDoesNot(t *testing.T) {
	t.Parallel()
	plan := credit.Plan{Normalization: credit.Normalization{Mean: credit.Group}}
	got, err := plan.Advantages(group(attempt(1, credit.Call{}), attempt(0, credit.Call{}), attempt(-1), attempt(9, credit.Call{Skip: true})))
	require.NoError(t, err)
	require.Equal(t, []float64{1, 0, -1, 0}, got.Trajectory[0])
	require.Equal(t, [][]float64{{1}, {0}, {}, {0}}, got.Call[0])
}

func TestAGroupOfOneLearnsNothingFromItself(t *testing.T) {
	t.Parallel()
	for _, a := range []credit.Assignment{credit.Identical, credit.Discounted, credit.LastCall, credit.GiGPO, credit.Judge} {
		for _, std := range []credit.Level{credit.None, credit.Group, credit.ByMean} {
			for _, loo := range []bool{false, true} {
				plan := credit.Plan{
					Normalization: credit.Normalization{Mean: credit.Group, Std: std, LeaveOneOut: loo}, Assignment: a, Discount: 0.9, StepWeight: 1,
				}
				got, err := plan.Advantages(group(attempt(1, credit.Call{State: "a", Judged: 1})))
				require.NoError(t, err)
				require.Equal(t, []float64{0}, got.Call[0][0], "%+v", plan)
			}
		}
	}
}

func TestGroupsWithoutSuccessTeachNothingByTheMean(t *testing.T) {
	t.Parallel()
	maxrl := credit.Plan{Normalization: credit.Normalization{Mean: credit.Group, Std: credit.ByMean}}
	got, err := maxrl.Advantages([][]credit.Trajectory{
		{attempt(1, credit.Call{}), attempt(0, credit.Call{}), attempt(0, credit.Call{}), attempt(0, credit.Call{})},
		{attempt(-1, credit.Call{}), attempt(1, credit.Call{})},
		{attempt(-3, credit.Call{}), attempt(1, credit.Call{})},
	})
	require.NoError(t, err)
	require.Equal(t, [][]float64{{3, -1, -1, -1}, {0, 0}, {0, 0}}, got.Trajectory)

	maxrl.Normalization.Mean = credit.Batch
	got, err = maxrl.Advantages(group(attempt(-2, credit.Call{}), attempt(1, credit.Call{})))
	require.NoError(t, err)
	require.Equal(t, [][]float64{{0, 0}}, got.Trajectory)
}

// In floating point the mean of ten times 0.1 is not 0.1.
func TestEqualRewardsHaveNoAdvantageAtAll(t *testing.T) {
	t.Parallel()
	var samples []credit.Trajectory
	for range 10 {
		samples = append(samples, attempt(0.1, credit.Call{Tokens: 3}))
	}
	for _, plan := range []credit.Plan{{Normalization: grpo}, {Whiten: true}} {
		got, err := plan.Advantages(group(samples...))
		require.NoError(t, err)
		for _, calls := range got.Call[0] {
			require.Equal(t, []float64{0}, calls)
		}
	}
	wordless := attempt(5, credit.Call{Tokens: 1})
	wordless.Calls[0].Tokens = 0
	got, err := credit.Plan{Whiten: true}.Advantages(group(append(samples, wordless)...))
	require.NoError(t, err)
	require.Equal(t, [][]float64{{0}, {0}}, got.Call[0][9:], "a call without tokens is not a difference between tokens")
}

func TestDiscountedCreditLooksAheadOnly(t *testing.T) {
	t.Parallel()
	plan := credit.Plan{Assignment: credit.Discounted, Discount: 0.5}
	got, err := plan.Advantages(group(attempt(4, credit.Call{Reward: 8}, credit.Call{Reward: 2}, credit.Call{})))
	require.NoError(t, err)
	require.Equal(t, []float64{1 + 8 + 1, 2 + 2, 4}, got.Call[0][0])
	require.Equal(t, []float64{14}, got.Trajectory[0], "all of it, undiscounted")
}

// The two parts of each trajectory cancel up to rounding. The deviation of the sums would
// be 1e-17, and quotients by it 1e5 and more.
func TestEarningsThatCancelDoNotExplode(t *testing.T) {
	t.Parallel()
	plan := credit.Plan{Normalization: grpo, Assignment: credit.Discounted, Discount: 0.9}
	got, err := plan.Advantages(group(
		attempt(0.3, credit.Call{}, credit.Call{}), attempt(0.2, credit.Call{Reward: 0.1}, credit.Call{}),
		attempt(0.1, credit.Call{Reward: 0.1}, credit.Call{Reward: 0.1}),
	))
	require.NoError(t, err)
	for _, calls := range got.Call[0] {
		for _, a := range calls {
			require.Less(t, math.Abs(a), 3.0)
		}
	}
}

func TestGiGPOComparesOnlyEqualStatesOfAGroup(t *testing.T) {
	t.Parallel()
	plan := credit.Plan{Normalization: credit.Normalization{Mean: credit.Group}, Assignment: credit.GiGPO, Discount: 0.5, StepWeight: 2}
	call := func(state string) credit.Call { return credit.Call{State: state} }
	groups := append(group(
		attempt(1, call("a"), call("b"), call("")), attempt(0, call("a"), call("c"), call("")),
	), group(attempt(1, call("a")), attempt(1, call("b")))...)
	got, err := plan.Advantages(groups)
	require.NoError(t, err)
	// Only "a" is met twice in a group: its returns are 1/4 and 0, their mean 1/8.
	require.Equal(t, [][]float64{{0.5 + 2*0.125, 0.5, 0.5}, {-0.5 - 2*0.125, -0.5, -0.5}}, got.Call[0])
	require.Equal(t, [][]float64{{0}, {0}}, got.Call[1])
}

// A skipped call may contain anything: the credit of the other calls is the same as
// without it.
func TestSkippedCallsChangeNothing(t *testing.T) {
	t.Parallel()
	g := readAdvantages(t)
	stranger := credit.Call{
		Agent: "stranger", State: "start", Reward: 7, Tokens: 2, Skip: true, Values: []float64{math.NaN()}, Before: math.Inf(1), Judged: math.NaN(),
	}
	for _, c := range g.Cases {
		groups := g.Batches[c.Batch]
		with := make([][]credit.Trajectory, len(groups))
		for i, samples := range groups {
			for _, t := range samples {
				if len(t.Calls) > 0 { // an attempt that had no calls would no longer count
					t.Calls = append(append([]credit.Call{stranger}, t.Calls...), stranger)
				}
				with[i] = append(with[i], t)
			}
		}
		want, err := c.Plan.Advantages(groups)
		require.NoError(t, err)
		got, err := c.Plan.Advantages(with)
		require.NoError(t, err)
		require.Equal(t, want.Trajectory, got.Trajectory)
		for i, samples := range want.Call {
			for j, calls := range samples {
				if len(calls) == 0 {
					continue
				}
				require.Equal(t, append(append([]float64{0}, calls...), 0), got.Call[i][j], c.Name)
				if want.Token != nil {
					require.Equal(t, want.Token[i][j], got.Token[i][j][1:len(calls)+1])
					require.Equal(t, []float64{0, 0}, got.Token[i][j][0])
				}
			}
		}
	}
}
