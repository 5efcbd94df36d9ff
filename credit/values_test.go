package credit_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/credit"
)

// linear draws groups whose outcomes are a sum over features, and noise.
func linear(seed uint64, groups, samples int, noise float64) ([][]credit.Example, func([]uint64) float64) {
	r := rand.New(rand.NewPCG(seed, 1))
	weights := make([]float64, 40)
	for i := range weights {
		weights[i] = r.NormFloat64()
	}
	truth := func(features []uint64) float64 {
		sum := 3.0
		for _, f := range features {
			sum += weights[f>>32]
		}
		return sum
	}
	out := make([][]credit.Example, groups)
	for g := range out {
		for range samples {
			var features []uint64
			for _, f := range r.Perm(len(weights))[:8] {
				features = append(features, uint64(f)<<32)
			}
			out[g] = append(out[g], credit.Example{Features: features, Outcome: truth(features) + noise*r.NormFloat64()})
		}
	}
	return out, truth
}

func TestValuesRecoverAKnownFunction(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ noise, unexplained float64 }{{0, 0.005}, {1, 0.03}} {
		groups, truth := linear(7, 40, 16, c.noise)
		values, err := credit.FitValues(groups)
		require.NoError(t, err)
		squares, variance, mean, n := 0.0, 0.0, 0.0, 0.0
		for _, examples := range groups {
			for _, e := range examples {
				mean, n = mean+truth(e.Features), n+1
			}
		}
		mean /= n
		for g, examples := range groups {
			for _, e := range examples {
				want := truth(e.Features)
				squares += math.Pow(values[g].Value(e.Features)-want, 2)
				variance += (want - mean) * (want - mean)
			}
		}
		require.Less(t, squares/variance, c.unexplained, "noise %v", c.noise)
	}
}

// Features that carry no information get little weight: the estimate is near the mean.
func TestValuesOfNoiseAreTheMean(t *testing.T) {
	t.Parallel()
	groups, _ := linear(3, 30, 8, 0)
	r := rand.New(rand.NewPCG(1, 1))
	n := 0
	for g := range groups {
		for i := range groups[g] {
			groups[g][i].Outcome = float64(r.IntN(2))
			n++
		}
	}
	values, err := credit.FitValues(groups)
	require.NoError(t, err)
	squares := 0.0
	for g, examples := range groups {
		for _, e := range examples {
			squares += math.Pow(values[g].Value(e.Features)-0.5, 2)
		}
	}
	require.Less(t, math.Sqrt(squares/float64(n)), 0.1)
}

// The attempts have four calls. The second call decides the outcome, and the features of
// later calls show it.
func TestValueDifferenceFindsTheCallThatDecided(t *testing.T) {
	t.Parallel()
	const decides = 1
	r := rand.New(rand.NewPCG(2, 2))
	examples := make([][]credit.Example, 24)
	groups := make([][]credit.Trajectory, len(examples))
	for g := range groups {
		for range 8 {
			well := r.IntN(2) == 0
			outcome := 0.0
			if well == (r.Float64() < 0.9) {
				outcome = 1
			}
			calls := make([]credit.Call, 4)
			for k := range calls {
				features := []uint64{uint64(k), 100 + uint64(r.IntN(20)), 1000 + uint64(g)} // turn, chatter, task
				if k > decides {
					features = append(features, map[bool]uint64{false: 50, true: 51}[well])
				}
				examples[g] = append(examples[g], credit.Example{Features: features, Outcome: outcome})
			}
			groups[g] = append(groups[g], attempt(outcome, calls...))
		}
	}
	values, err := credit.FitValues(examples)
	require.NoError(t, err)
	for g, samples := range groups {
		for i, one := range samples {
			for k := range one.Calls {
				one.Calls[k].Before = values[g].Value(examples[g][4*i+k].Features)
			}
		}
	}
	got := must(t, credit.Plan{Assignment: credit.ValueDifference}, groups)
	var size [4]float64
	for g := range groups {
		for _, calls := range got.Call[g] {
			for k, a := range calls {
				size[k] += math.Abs(a) / 8 / float64(len(groups))
			}
		}
	}
	require.Greater(t, size[decides], 0.3, "half of the outcome is decided there: %v", size)
	require.Less(t, size[0], 0.1)
	require.Less(t, size[2], 0.1)
}

// Whatever the outcomes of a group are, its own estimates stay the same to the bit.
func TestNoGroupIsEstimatedFromItself(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seed, n := rapid.Uint64().Draw(t, "seed"), rapid.IntRange(2, 12).Draw(t, "groups")
		groups, _ := linear(seed, n, 3, 1)
		before, err := credit.FitValues(groups)
		require.NoError(t, err)
		g := rapid.IntRange(0, n-1).Draw(t, "group")
		for i := range groups[g] {
			groups[g][i].Outcome = rapid.Float64Range(-9, 9).Draw(t, "outcome")
		}
		after, err := credit.FitValues(groups)
		require.NoError(t, err)
		for _, e := range groups[g] {
			require.InDelta(t, before[g].Value(e.Features), after[g].Value(e.Features), 0)
		}
	})
}

func TestValuesRepeatToTheBitWhateverTheOrderOfFeatures(t *testing.T) {
	t.Parallel()
	groups, _ := linear(5, 9, 4, 1)
	first, err := credit.FitValues(groups)
	require.NoError(t, err)
	again, err := credit.FitValues(groups)
	require.NoError(t, err)
	for g, examples := range groups {
		for _, e := range examples {
			mixed := append([]uint64{e.Features[3]}, e.Features...) // one twice
			mixed[1], mixed[5] = mixed[5], mixed[1]
			require.InDelta(t, first[g].Value(e.Features), again[g].Value(mixed), 0)
		}
	}
}

func TestValuesStayAmongTheOutcomesThatWereSeen(t *testing.T) {
	t.Parallel()
	groups, _ := linear(11, 40, 16, 0)
	low, high := math.Inf(1), math.Inf(-1)
	for _, examples := range groups {
		for _, e := range examples {
			low, high = min(low, e.Outcome), max(high, e.Outcome)
		}
	}
	values, err := credit.FitValues(groups)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 9))
	for range 500 {
		var features []uint64
		for _, f := range r.Perm(40)[:1+r.IntN(20)] {
			features = append(features, uint64(f)<<32)
		}
		v := values[0].Value(features)
		require.GreaterOrEqual(t, v, low)
		require.LessOrEqual(t, v, high)
	}
	require.InDelta(t, 0, credit.Forecast{}.Value([]uint64{1, 2}), 0)
}

func TestValuesNeedTwoGroupsAndOutcomes(t *testing.T) {
	t.Parallel()
	one := []credit.Example{{Features: []uint64{1}, Outcome: 1}, {Outcome: 0}}
	for _, groups := range [][][]credit.Example{nil, {one}, {one, nil, {}}, {one, {{Outcome: math.NaN()}}}, {{{Outcome: math.Inf(1)}}, one}} {
		_, err := credit.FitValues(groups)
		require.ErrorIs(t, err, credit.ErrEstimate)
	}
	values, err := credit.FitValues([][]credit.Example{one, nil, one})
	require.NoError(t, err)
	require.Len(t, values, 3, "one for each group, also for the empty")
	require.InDelta(t, 0.5, values[1].Value(nil), 0.5)
}
