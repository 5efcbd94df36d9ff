package credit_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/credit"
)

// someGroups draws a batch with few different states and some skipped calls.
func someGroups(t *rapid.T, earning bool) [][]credit.Trajectory {
	reward := rapid.OneOf(rapid.Float64Range(-3, 3), rapid.SampledFrom([]float64{0, 1}))
	var groups [][]credit.Trajectory
	for g := range rapid.IntRange(1, 4).Draw(t, "groups") {
		var samples []credit.Trajectory
		for i := range rapid.IntRange(1, 6).Draw(t, "samples") {
			var calls []credit.Call
			for range rapid.IntRange(1, 4).Draw(t, "calls") {
				c := credit.Call{
					Agent: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "agent"), State: rapid.SampledFrom([]string{"", "s", "t"}).Draw(t, "state"),
					Tokens: rapid.IntRange(1, 3).Draw(t, "tokens"), Skip: rapid.IntRange(0, 4).Draw(t, "skip") == 0,
					Before: reward.Draw(t, "before"), Judged: reward.Draw(t, "judged"),
				}
				c.Values = rapid.SliceOfN(rapid.Float64Range(-2, 2), c.Tokens, c.Tokens).Draw(t, "values")
				if earning {
					c.Reward = reward.Draw(t, "earned")
				}
				calls = append(calls, c)
			}
			one := attempt(reward.Draw(t, "final"), calls...)
			one.Name = fmt.Sprintf("%d/%d", g, i)
			samples = append(samples, one)
		}
		groups = append(groups, samples)
	}
	groups[0][0].Calls[0].Skip = false // something to train
	return groups
}

// somePlan draws any plan that is free of contradictions.
func somePlan(t *rapid.T) credit.Plan {
	p := credit.Plan{
		Discount: rapid.Float64Range(0, 1).Draw(t, "discount"), Lambda: rapid.Float64Range(0, 1).Draw(t, "lambda"),
		StepWeight: rapid.Float64Range(0, 2).Draw(t, "step weight"), PerAgent: rapid.Bool().Draw(t, "per agent"), Whiten: rapid.Bool().Draw(t, "whiten"),
		Tokens: rapid.SampledFrom([]credit.Spread{"", credit.Uniform, credit.Uniform, credit.GAE}).Draw(t, "tokens"),
	}
	if p.Tokens == credit.GAE {
		return p
	}
	p.Assignment = rapid.SampledFrom([]credit.Assignment{
		credit.Identical, credit.Discounted, credit.LastCall, credit.GiGPO, credit.TurnGAE, credit.ValueDifference, credit.Judge,
	}).Draw(t, "assignment")
	if p.Assignment == credit.TurnGAE || p.Assignment == credit.ValueDifference {
		return p
	}
	p.Separate = rapid.Bool().Draw(t, "separate")
	p.Normalization = credit.Normalization{
		Mean:        rapid.SampledFrom([]credit.Level{credit.None, credit.Group, credit.Batch}).Draw(t, "mean"),
		Std:         rapid.SampledFrom([]credit.Level{credit.None, credit.Group, credit.Batch}).Draw(t, "std"),
		LeaveOneOut: rapid.Bool().Draw(t, "leave one out"),
	}
	return p
}

func must(t require.TestingT, p credit.Plan, groups [][]credit.Trajectory) credit.Advantages {
	a, err := p.Advantages(groups)
	require.NoError(t, err)
	return a
}

// changed returns a copy of groups with other final rewards and other rewards of calls.
func changed(groups [][]credit.Trajectory, final func(g int, r float64) float64, earned func(e float64) float64) [][]credit.Trajectory {
	out := make([][]credit.Trajectory, len(groups))
	for g, samples := range groups {
		for _, t := range samples {
			t.Rewards = map[string]float64{"final": final(g, t.Rewards["final"])}
			t.Calls = slices.Clone(t.Calls)
			for k := range t.Calls {
				t.Calls[k].Reward = earned(t.Calls[k].Reward)
			}
			out[g] = append(out[g], t)
		}
	}
	return out
}

func same(x float64) float64 { return x }

// requireClose allows for large numbers, which a division by a small deviation may
// produce.
func requireClose(t require.TestingT, want, got []float64, more ...any) {
	require.Len(t, got, len(want))
	for i := range want {
		require.InDelta(t, want[i], got[i], 1e-6*math.Max(1, math.Abs(want[i])), more...)
	}
}

func TestCentredCreditSumsToZeroInEveryGroup(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		groups := someGroups(t, true)
		std := rapid.SampledFrom([]credit.Level{credit.None, credit.Group, credit.Batch, credit.ByMean}).Draw(t, "std")
		plan := credit.Plan{Normalization: credit.Normalization{Mean: credit.Group, Std: std, LeaveOneOut: rapid.Bool().Draw(t, "loo")}}
		for _, samples := range must(t, plan, groups).Trajectory {
			sum, size := 0.0, 1.0
			for _, a := range samples {
				sum, size = sum+a, math.Max(size, math.Abs(a))
			}
			require.InDelta(t, 0, sum, 1e-9*size)
		}
		// The parts that a judge and equal states add are centred as well.
		plan.Normalization.Std = credit.None
		before := total(must(t, plan, groups))
		plan.Assignment, plan.StepWeight, plan.Discount = rapid.SampledFrom([]credit.Assignment{credit.Judge, credit.GiGPO}).Draw(t, "by"), 1, 0.9
		requireClose(t, before, total(must(t, plan, groups)))
	})
}

// total returns the sum of the advantages of each group's calls.
func total(a credit.Advantages) []float64 {
	out := make([]float64, len(a.Call))
	for g, samples := range a.Call {
		for _, calls := range samples {
			for _, c := range calls {
				out[g] += c
			}
		}
	}
	return out
}

func TestAnotherZeroOfRewardsChangesNothingThatIsCentred(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		groups := someGroups(t, true)
		for g := range groups { // differences must not consist of rounding alone
			for i := range groups[g] {
				groups[g][i].Rewards["final"] = math.Round(4*groups[g][i].Rewards["final"]) / 4
				for k := range groups[g][i].Calls {
					groups[g][i].Calls[k].Reward = math.Round(4*groups[g][i].Calls[k].Reward) / 4
				}
			}
		}
		shifts := rapid.SliceOfN(rapid.IntRange(-8, 8), len(groups), len(groups)).Draw(t, "shifts")
		plan := credit.Plan{
			Normalization: credit.Normalization{Mean: credit.Group, Std: rapid.SampledFrom([]credit.Level{credit.None, credit.Group}).Draw(t, "std")},
			Assignment:    rapid.SampledFrom([]credit.Assignment{credit.Identical, credit.Discounted, credit.LastCall, credit.Judge}).Draw(t, "assignment"),
			Discount:      0.5, PerAgent: rapid.Bool().Draw(t, "per agent"),
		}
		want := must(t, plan, groups)
		got := must(t, plan, changed(groups, func(g int, r float64) float64 { return r + float64(shifts[g]) }, same))
		for g := range want.Call {
			requireClose(t, want.Trajectory[g], got.Trajectory[g])
			for i := range want.Call[g] {
				requireClose(t, want.Call[g][i], got.Call[g][i])
			}
		}
	})
}

// Without division by a deviation, credit grows with the rewards. With it, credit stays
// the same up to the epsilon.
func TestCreditScalesWithRewardsUnlessItIsDivided(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// A power of two rounds nothing, but a number below 2e-308 has fewer bits than the
		// same number eight times as large.
		const by = 8
		rounded := func(x float64) float64 { return math.Round(x*(1<<40)) / (1 << 40) }
		groups := changed(someGroups(t, true), func(_ int, r float64) float64 { return rounded(r) }, rounded)
		scale := func(x float64) float64 { return by * x }
		scaled := changed(groups, func(_ int, r float64) float64 { return by * r }, scale)
		plan := credit.Plan{
			Normalization: credit.Normalization{Mean: rapid.SampledFrom([]credit.Level{credit.None, credit.Group, credit.Batch}).Draw(t, "mean")},
			Assignment: rapid.SampledFrom([]credit.Assignment{
				credit.Identical, credit.Discounted, credit.LastCall, credit.GiGPO,
			}).Draw(t, "assignment"),
			Discount: 0.5, StepWeight: 1, PerAgent: rapid.Bool().Draw(t, "per agent"),
		}
		want, got := must(t, plan, groups), must(t, plan, scaled)
		for g := range want.Call {
			for i := range want.Call[g] {
				for k, a := range want.Call[g][i] {
					require.InDelta(t, by*a, got.Call[g][i][k], 0)
				}
			}
		}
		plan.Normalization.Std = credit.ByMean
		plan.Normalization.Mean = credit.Group
		require.Equal(t, must(t, plan, groups), must(t, plan, scaled), "a quotient of rewards has no scale")
	})
}

func TestSamplesAndGroupsHaveNoOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		groups, plan := someGroups(t, rapid.Bool().Draw(t, "earning")), somePlan(t)
		// Summed in another order, equal numbers give sums that differ in the last bit,
		// and a deviation of 1e-17 is not 0. Multiples of 1/16 have exact sums.
		dyadic := func(x float64) float64 { return math.Round(16*x) / 16 }
		groups = changed(groups, func(_ int, r float64) float64 { return dyadic(r) }, dyadic)
		type place struct{ g, i int }
		order := rapid.Permutation(indices(len(groups))).Draw(t, "order of groups")
		var shuffled [][]credit.Trajectory
		var from [][]place
		for _, g := range order {
			var samples []credit.Trajectory
			var places []place
			for _, i := range rapid.Permutation(indices(len(groups[g]))).Draw(t, "order of samples") {
				samples, places = append(samples, groups[g][i]), append(places, place{g, i})
			}
			shuffled, from = append(shuffled, samples), append(from, places)
		}
		want, got := must(t, plan, groups), must(t, plan, shuffled)
		for g := range from {
			for i, p := range from[g] {
				requireClose(t, want.Trajectory[p.g][p.i:p.i+1], got.Trajectory[g][i:i+1], "%+v", plan)
				requireClose(t, want.Call[p.g][p.i], got.Call[g][i], "%+v", plan)
				for k := range want.Call[p.g][p.i] {
					if want.Token != nil {
						requireClose(t, want.Token[p.g][p.i][k], got.Token[g][i][k])
					}
					if want.Returns != nil {
						requireClose(t, want.Returns[p.g][p.i][k], got.Returns[g][i][k])
					}
				}
			}
		}
	})
}

func TestSkippedCallsGetNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		groups, plan := someGroups(t, true), somePlan(t)
		got := must(t, plan, groups)
		for g, samples := range groups {
			for i, one := range samples {
				for k, c := range one.Calls {
					if !c.Skip {
						continue
					}
					require.Zero(t, got.Call[g][i][k], "%+v", plan)
					if got.Token != nil {
						require.Equal(t, make([]float64, c.Tokens), got.Token[g][i][k])
					}
					if got.Returns != nil {
						require.Equal(t, make([]float64, c.Tokens), got.Returns[g][i][k])
					}
				}
			}
		}
	})
}

func TestRewardsThatDifferByRoundingAreEqual(t *testing.T) {
	t.Parallel()
	require.False(t, credit.Varies([]float64{0.1 + 0.2, 0.3, 0.3}))
	require.True(t, credit.Varies([]float64{0.3, 0.3 + 1e-9}))
	got, err := credit.Normalization{Mean: credit.Group, Std: credit.Group}.Advantages([][]float64{{0.30000000000000004, 0.3}})
	require.NoError(t, err)
	require.Equal(t, [][]float64{{0, 0}}, got)
}
