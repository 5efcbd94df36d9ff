package model_test

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model"
)

// compare decides on a candidate whose rewards differ from the promoted version's by
// differences.
func compare(t require.TestingT, differences []float64, margin, significance float64) model.Decision {
	baseline := make([]float64, len(differences))
	for i := range baseline {
		baseline[i] = float64(i%4) / 4 // exact, so that the differences are
	}
	rewards := slices.Clone(baseline)
	for i, d := range differences {
		rewards[i] += d
	}
	d, err := model.DecidePaired(5, 3, rewards, baseline, margin, significance)
	require.NoError(t, err)
	return d
}

// The expected p-values were computed over all sign patterns in exact fractions. Those
// for many tasks are binomial tails; those of integers are a sum over a lattice.
func TestPValuesAreThoseOfTheSignFlipTest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		differences []float64
		p           float64
	}{
		"seven of nine, five equal":      {[]float64{1, 1, 1, 1, 1, 1, 1, -1, -1, 0, 0, 0, 0, 0}, 23.0 / 256},
		"all better":                     {[]float64{1, 1, 1, 1}, 1.0 / 16},
		"several samples a task":         {[]float64{0.5, -0.25, 1, 0.75, 0, 0.25, -0.5, 1}, 11.0 / 128},
		"thirds":                         {[]float64{1. / 3, 2. / 3, -1. / 3, 1, 1. / 3, 0, -2. / 3, 1. / 3, 1. / 3}, 39.0 / 256},
		"any rewards":                    {[]float64{0.8, 0.31, -0.17, 0.44, 1.9, -0.6, 0.05, 0.72, 0.28, -0.03, 1.1}, 7.0 / 256},
		"worse":                          {[]float64{-1, -1, 1, -1}, 15.0 / 16},
		"two tasks":                      {[]float64{1, 1}, 1.0 / 4},
		"one task proves nothing":        {[]float64{1}, 1},
		"one that differs among several": {[]float64{0, 1, 0, 0}, 1.0 / 2},
		"all equal":                      {[]float64{0, 0, 0, 0}, 1},
		"equal but for rounding":         {[]float64{1e-16, 1e-16, 1e-16, 1e-16, 1e-16}, 1},
		"60 of 100":                      {signs(60, 40), 0.028443966820490395},
		"24 of 40 and 960 equal":         {append(signs(24, 16), make([]float64, 960)...), 0.13409362552738457},
	} {
		require.InDelta(t, c.p, compare(t, c.differences, 0, 1).PValue, 1e-12, name)
	}
	many := integers()
	p := compare(t, many, 0, 1).PValue
	require.InDelta(t, 0.04595757451744924, p, 1e-5, "more sums than are told apart")
	slices.Reverse(many)
	require.Equal(t, p, compare(t, many, 0, 1).PValue, "in whatever order")
}

func signs(better, worse int) []float64 {
	out := make([]float64, better+worse)
	for i := range out {
		out[i] = 1
		if i >= better {
			out[i] = -1
		}
	}
	return out
}

// integers returns 120 differences that have more different sums than the test tells
// apart.
func integers() []float64 {
	x := uint32(12345)
	next := func() uint32 {
		x = (x*1103515245 + 12345) & (1<<31 - 1)
		return x >> 8
	}
	out := make([]float64, 120)
	for i := range out {
		out[i] = float64(1 + next()%4000)
		if next()%100 >= 57 {
			out[i] = -out[i]
		}
	}
	return out
}

func TestADecisionSaysWhatItWasMadeFrom(t *testing.T) {
	t.Parallel()
	d := compare(t, []float64{0.5, -0.25, 1, 0.75, 0, 0.25, -0.5, 1}, 0.1, 0.1)
	require.InDelta(t, 0.34375, d.Difference, 1e-15)
	require.InDelta(t, 0.20009763241977652, d.StdError, 1e-15, "of the mean difference, with tasks as what is drawn")
	require.InDelta(t, 0.375, d.Baseline, 1e-15)
	require.InDelta(t, 0.71875, d.Reward, 1e-15)
	require.Equal(t, 8, d.Tasks)
	require.True(t, d.Accept)
	require.Equal(t, "version 5 promoted: gate reward 0.719 against 0.375 of version 3, difference +0.344 ± 0.200 over 8 tasks, margin 0.1, p = 0.0859, at most 0.1", d.Reason())
	_, err := json.Marshal(compare(t, []float64{1}, 0, 0.1))
	require.NoError(t, err, "one task has no standard error, and JSON no word for that")
}

func TestACandidateMustBeBetterByTheMarginAndBeyondChance(t *testing.T) {
	t.Parallel()
	five := []float64{1, 1, 1, 1, 1}
	for name, c := range map[string]struct {
		differences          []float64
		margin, significance float64
		accept               bool
	}{
		"better":                             {five, 0, 0.1, true},
		"not beyond chance":                  {[]float64{1, 1, 1, 0, 0}, 0, 0.1, false},
		"the test is switched off":           {[]float64{1, 1, 1, 0, 0}, 0, 1, true},
		"beyond chance, within the margin":   {[]float64{.25, .25, .25, .25, .25}, 0.25, 0.1, false},
		"more than the margin":               {[]float64{.25, .25, .25, .25, .5}, 0.25, 0.1, true},
		"equal everywhere":                   {[]float64{0, 0, 0, 0, 0}, 0, 0.1, false},
		"equal everywhere, without a test":   {[]float64{0, 0, 0, 0, 0}, 0, 1, false},
		"equal on average, without a test":   {[]float64{1. / 3, 1. / 3, -2. / 3}, 0, 1, false},
		"worse, but a negative margin":       {[]float64{-.25, 0, 0, 0, 0}, -0.1, 1, true},
		"one task":                           {[]float64{1}, 0, 0.99, false},
		"one task, the test is switched off": {[]float64{1}, 0, 1, true},
		"a difference that is only rounding": {[]float64{5e-17, 1e-16, 5e-17, 1e-16, 1e-16}, 0, 1, false},
	} {
		require.Equal(t, c.accept, compare(t, c.differences, c.margin, c.significance).Accept, name)
	}
	d, err := model.DecidePaired(1, 0, []float64{0.8}, []float64{0.75}, 0.05, 1)
	require.NoError(t, err)
	require.False(t, d.Accept, "0.8 is not more than 0.05 above 0.75, although the floats are")
}

func TestWhatIsNoPairOfRewardsIsRefused(t *testing.T) {
	t.Parallel()
	for name, pair := range map[string][2][]float64{
		"none": {}, "unequal": {{1, 0}, {1}}, "no number": {{1, math.NaN()}, {1, 0}}, "infinite": {{1, 0}, {math.Inf(1), 0}},
	} {
		_, err := model.DecidePaired(5, 3, pair[0], pair[1], 0, 0.1)
		require.ErrorContains(t, err, "version 5", name)
	}
}

func TestReasonsSayWhatHappened(t *testing.T) {
	t.Parallel()
	first := model.Decision{Promoted: -1, Accept: true, ApprovedBy: "ada@host"}
	require.Equal(t, "version 0 promoted: it is the first, approved by ada@host", first.Reason())
	require.Equal(t, "version 4 refused: nothing to compare with", model.Unpaired(4, 2, "nothing to compare with").Reason())
	require.Equal(t, "version 2 promoted: gate reward 0.500 against 0.400 of version 1, margin 0.05", model.Decision{Candidate: 2, Promoted: 1, Reward: 0.5, Baseline: 0.4, Margin: 0.05, Accept: true}.Reason())
}

func differences(t *rapid.T) []float64 {
	// Quarters keep sums exact, whatever their order.
	quarters := rapid.SliceOfN(rapid.IntRange(-4, 4), 2, 40).Draw(t, "quarters")
	out := make([]float64, len(quarters))
	for i, q := range quarters {
		out[i] = float64(q) / 4
	}
	return out
}

func TestPValuesDependOnNothingButTheDifferences(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ds := differences(t)
		p := compare(t, ds, 0, 0.1).PValue
		require.True(t, p > 0 && p <= 1)

		scaled := slices.Clone(ds)
		for i := range scaled {
			scaled[i] *= 8
		}
		require.InDelta(t, p, compare(t, scaled, 0, 0.1).PValue, 1e-12, "the unit of rewards does not matter")

		baseline := make([]float64, len(ds))
		shift := float64(rapid.IntRange(-50, 50).Draw(t, "shift"))
		rewards := slices.Clone(ds)
		for i := range ds {
			baseline[i], rewards[i] = shift, ds[i]+shift
		}
		d, err := model.DecidePaired(5, 3, rewards, baseline, 0, 0.1)
		require.NoError(t, err)
		require.InDelta(t, p, d.PValue, 1e-12, "nor does their zero")

		drawn := rapid.SliceOfN(rapid.Float64Range(-1, 1), 2, 12).Draw(t, "real")
		require.Equal(t, zeroed(t, drawn), zeroed(t, rapid.Permutation(drawn).Draw(t, "order")), "nor the order of tasks, to the last bit")
	})
}

// zeroed returns the p-value if all rewards of the promoted version are 0.
func zeroed(t *rapid.T, rewards []float64) float64 {
	d, err := model.DecidePaired(5, 3, rewards, make([]float64, len(rewards)), 0, 0.1)
	require.NoError(t, err)
	return d.PValue
}

func TestSwappedVersionsHaveOppositePValues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ds := differences(t)
		swapped := slices.Clone(ds)
		for i := range swapped {
			swapped[i] = -ds[i]
		}
		a, b := compare(t, ds, 0, 0.1), compare(t, swapped, 0, 0.1)
		require.InDelta(t, a.Difference, -b.Difference, 1e-12)
		require.GreaterOrEqual(t, a.PValue+b.PValue, 1-1e-12, "the sum as it is counts in both tails")
		require.False(t, a.Accept && b.Accept)
		if a.Difference > 0 {
			require.LessOrEqual(t, a.PValue, b.PValue)
		}
	})
}

// One iteration compares versions over 1000 tasks with any rewards.
func BenchmarkDecidePaired(b *testing.B) {
	rewards, baseline := make([]float64, 1000), make([]float64, 1000)
	for i := range rewards {
		rewards[i] = math.Sin(float64(i)) + 0.05
		baseline[i] = math.Cos(float64(i * i))
	}
	for b.Loop() {
		_, err := model.DecidePaired(1, 0, rewards, baseline, 0, 0.1)
		require.NoError(b, err)
	}
}
