package evaluation_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/run/evaluation"
)

// subsets counts the k-element subsets of n samples, of which the first c succeeded, with
// at least one success and with successes alone.
func subsets(n, c, k int) (total, some, all float64) {
	for set := range 1 << n {
		size, successes := 0, 0
		for i := range n {
			if set>>i&1 == 1 {
				size++
				if i < c {
					successes++
				}
			}
		}
		if size != k {
			continue
		}
		total++
		if successes > 0 {
			some++
		}
		if successes == k {
			all++
		}
	}
	return total, some, all
}

func TestPassesAreShareOfSubsets(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 9; n++ {
		for c := 0; c <= n; c++ {
			for k := 1; k <= n; k++ {
				total, some, all := subsets(n, c, k)
				require.InDelta(t, some/total, evaluation.PassAt(n, c, k), 1e-12, "pass@%d of %d in %d", k, c, n)
				require.InDelta(t, all/total, evaluation.PassAll(n, c, k), 1e-12, "pass^%d of %d in %d", k, c, n)
			}
		}
	}
}

func TestPassAtOfManySamplesIsFinite(t *testing.T) {
	t.Parallel()
	// 200 samples of which 3 succeed, as in the paper's scale: 1 − C(197, 100) / C(200, 100).
	require.InDelta(t, 1-(100.0*99*98)/(200.0*199*198), evaluation.PassAt(200, 3, 100), 1e-12)
	require.Zero(t, evaluation.PassAt(10000, 0, 5000))
	require.InDelta(t, 1, evaluation.PassAll(10000, 10000, 10000), 0)
}

func TestEstimatesAreUnbiased(t *testing.T) {
	t.Parallel()
	const n, k, p = 6, 3, 0.3
	at, all := 0.0, 0.0
	for c := 0; c <= n; c++ {
		probability := math.Pow(p, float64(c)) * math.Pow(1-p, float64(n-c))
		for i := range c {
			probability *= float64(n-i) / float64(i+1)
		}
		at += probability * evaluation.PassAt(n, c, k)
		all += probability * evaluation.PassAll(n, c, k)
	}
	require.InDelta(t, 1-math.Pow(1-p, k), at, 1e-12)
	require.InDelta(t, math.Pow(p, k), all, 1e-12)
}

func TestIntervalsHoldTheMeanAndRepeat(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.IntRange(2, 6).Draw(t, "samples")
		rewards := rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom([]float64{0, 0.5, 1}), samples, samples), 1, 12).Draw(t, "rewards")
		p := evaluation.PassesOf(rewards, 1)
		require.Equal(t, p, evaluation.PassesOf(rewards, 1))
		require.Equal(t, samples, p.ByK[len(p.ByK)-1].K)
		for i, k := range p.ByK {
			for _, e := range []evaluation.Estimate{k.At, k.All} {
				require.LessOrEqual(t, e.Low, e.Mean+1e-12)
				require.GreaterOrEqual(t, e.High, e.Mean-1e-12)
			}
			if i > 0 {
				require.GreaterOrEqual(t, k.At.Mean, p.ByK[i-1].At.Mean-1e-12, "more tries solve more")
				require.LessOrEqual(t, k.All.Mean, p.ByK[i-1].All.Mean+1e-12, "more have to succeed")
			}
		}
	})
}

func TestIntervalsCoverTheTruth(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 7))
	const runs, tasks = 300, 60
	covered := 0
	for range runs {
		rewards := make([][]float64, tasks)
		for i := range rewards {
			rate := random.Float64() // the task's own rate, uniform, so that pass@1 is a half
			for range 2 {
				r := 0.0
				if random.Float64() < rate {
					r = 1
				}
				rewards[i] = append(rewards[i], r)
			}
		}
		e := evaluation.PassesOf(rewards, 1).ByK[0].At
		if e.Low <= 0.5 && 0.5 <= e.High {
			covered++
		}
	}
	require.InDelta(t, evaluation.Level, float64(covered)/runs, 0.04)
}

func TestSuccessIsARewardOfTheThresholdOrMore(t *testing.T) {
	t.Parallel()
	rewards := [][]float64{{0.5, 0.4}, {1, 0.5}}
	require.InDelta(t, 0.75, evaluation.PassesOf(rewards, 0.5).ByK[0].At.Mean, 1e-12)
	require.InDelta(t, 0.25, evaluation.PassesOf(rewards, 1).ByK[0].At.Mean, 1e-12)
	require.InDelta(t, 1, evaluation.PassesOf([][]float64{{0.9999999999999999, 1}, {1 - 2e-16, 1.0000000000000002}}, 1).ByK[0].At.Mean, 1e-12, "rounding is no failure")
	require.Zero(t, evaluation.PassesOf([][]float64{{0.999, 0.99999}}, 1).ByK[0].At.Mean)
	require.InDelta(t, 1, evaluation.PassesOf([][]float64{{-0.30000000000000004, -0.3}}, -0.3).ByK[0].At.Mean, 1e-12)
	require.Nil(t, evaluation.PassesOf([][]float64{{1}, {0}}, 1), "one sample says nothing of several")
	require.Nil(t, evaluation.PassesOf(nil, 1))
}
