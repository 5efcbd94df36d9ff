package credit_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/credit"
)

var grpo = credit.Normalization{Mean: credit.Group, Std: credit.Group}

func TestGRPOMatchesTheFormulaByHand(t *testing.T) {
	t.Parallel()
	got, err := grpo.Advantages([][]float64{{1, 0, 0, 1}})
	require.NoError(t, err)
	// mean 1/2, unbiased deviation sqrt(1/3)
	want := 0.5 / (math.Sqrt(1.0/3) + 1e-6)
	require.InDeltaSlice(t, []float64{want, -want, -want, want}, got[0], 1e-12)
}

func TestRLOOSubtractsTheMeanOfTheOthers(t *testing.T) {
	t.Parallel()
	rloo := credit.Normalization{Mean: credit.Group, LeaveOneOut: true}
	got, err := rloo.Advantages([][]float64{{3, 1, 2}})
	require.NoError(t, err)
	require.InDeltaSlice(t, []float64{3 - 1.5, 1 - 2.5, 0}, got[0], 1e-12)
}

func TestBatchLevelUsesAllGroups(t *testing.T) {
	t.Parallel()
	got, err := credit.Normalization{Mean: credit.Batch}.Advantages([][]float64{{1, 1}, {0, 2}, {2}})
	require.NoError(t, err)
	require.InDeltaSlice(t, []float64{-0.2, -0.2}, got[0], 1e-12)
	require.InDeltaSlice(t, []float64{0.8}, got[2], 1e-12)
}

func TestAGroupWithoutVarianceTeachesNothing(t *testing.T) {
	t.Parallel()
	for _, rewards := range [][]float64{{0.3, 0.3, 0.3}, {7}} {
		got, err := grpo.Advantages([][]float64{rewards})
		require.NoError(t, err)
		require.Equal(t, make([]float64, len(rewards)), got[0])
		require.False(t, credit.Varies(rewards))
	}
}

// The mean of rewards that cancel is only a rounding error.
func TestAMeanNextToNothingDividesNothing(t *testing.T) {
	t.Parallel()
	maxrl := credit.Normalization{Mean: credit.Group, Std: credit.ByMean}
	got, err := maxrl.Advantages([][]float64{{0.1, 0.2, -0.3}, {1, -1, 1e-7}, {-1, 0}, {0, 0, 0, 1}})
	require.NoError(t, err)
	require.Equal(t, [][]float64{{0, 0, 0}, {0, 0, 0}, {0, 0}, {-1, -1, -1, 3}}, got)
	rare := make([]float64, 10_000) // the largest group that a spec can ask for
	rare[0] = 1
	got, err = maxrl.Advantages([][]float64{rare})
	require.NoError(t, err)
	require.InDelta(t, 9999, got[0][0], 1e-6)
}

func TestRewardsThatAreNotFiniteAreRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		_, err := grpo.Advantages([][]float64{{1, 2}, {0, bad}})
		require.ErrorIs(t, err, credit.ErrReward)
		require.ErrorContains(t, err, "group 1 sample 1")
	}
}

func TestGroupAdvantagesSumToZeroAndIgnoreShiftAndOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rewards := rapid.SliceOfN(rapid.Float64Range(-10, 10), 2, 12).Draw(t, "rewards")
		shift := rapid.Float64Range(-100, 100).Draw(t, "shift")
		shifted := make([]float64, len(rewards))
		reversed := make([]float64, len(rewards))
		for i, r := range rewards {
			shifted[i] = r + shift
			reversed[len(rewards)-1-i] = r
		}
		a, err := credit.Normalization{Mean: credit.Group}.Advantages([][]float64{rewards, shifted, reversed})
		require.NoError(t, err)
		sum := 0.0
		for i := range a[0] {
			sum += a[0][i]
			require.InDelta(t, a[0][i], a[1][i], 1e-9)
			require.InDelta(t, a[0][i], a[2][len(rewards)-1-i], 1e-9)
		}
		require.InDelta(t, 0, sum, 1e-9)
	})
}

func TestAssignmentsSpreadTheAdvantage(t *testing.T) {
	t.Parallel()
	for a, want := range map[credit.Assignment][]float64{
		credit.Identical:  {2, 2, 2},
		credit.Discounted: {0.5, 1, 2},
		credit.LastCall:   {0, 0, 2},
	} {
		got, err := a.Calls(2, 3, 0.5)
		require.NoError(t, err)
		require.Equal(t, want, got, a)
	}
	_, err := credit.Assignment("guess").Calls(1, 1, 1)
	require.ErrorIs(t, err, credit.ErrAssignment)
}

func TestAggregationsWeighTokensAndTrajectories(t *testing.T) {
	t.Parallel()
	d := credit.Denominators{Trajectory: []int{2, 0, 6}, Length: 10}
	require.InDelta(t, 1.0/8, d.Weight(credit.TokenMean, 0), 1e-15)
	require.InDelta(t, 1.0/4, d.Weight(credit.SequenceMean, 0), 1e-15)
	require.InDelta(t, 1.0/12, d.Weight(credit.SequenceMean, 2), 1e-15)
	require.InDelta(t, 1.0/20, d.Weight(credit.Constant, 2), 1e-15, "a trajectory without a token is none")
}
