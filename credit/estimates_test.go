package credit_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/credit"
)

func TestWhitenedTokensHaveMeanZeroAndDeviationOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		groups, plan := someGroups(t, true), somePlan(t)
		plan.Whiten = true
		got := must(t, plan, groups)
		var all []float64
		for g, samples := range groups {
			for i, one := range samples {
				for k, c := range one.Calls {
					for token := range c.Tokens {
						switch {
						case c.Skip:
						case got.Token != nil:
							all = append(all, got.Token[g][i][k][token])
						default:
							all = append(all, got.Call[g][i][k])
						}
					}
				}
			}
		}
		sum, squares := 0.0, 0.0
		for _, a := range all {
			sum, squares = sum+a, squares+a*a
		}
		require.InDelta(t, 0, sum/float64(len(all)), 1e-6)
		if squares == 0 {
			return // nothing differs
		}
		deviation := math.Sqrt(squares / float64(len(all)-1))
		require.LessOrEqual(t, deviation, 1+1e-9)
		plan.Whiten = false
		if spreadOf(must(t, plan, groups), groups) > 0.1 { // far above epsilon
			require.Greater(t, deviation, 1-1e-5)
		}
	})
}

// spreadOf returns the largest difference between the advantages of trained calls, or of
// their tokens if these differ.
func spreadOf(a credit.Advantages, groups [][]credit.Trajectory) float64 {
	low, high := math.Inf(1), math.Inf(-1)
	for g, samples := range groups {
		for i, one := range samples {
			for k, c := range one.Calls {
				if !c.Skip {
					low, high = min(low, a.Call[g][i][k]), max(high, a.Call[g][i][k])
				}
			}
		}
	}
	return high - low
}

// With λ = 1 and γ = 1 the values cancel: the critic's target is the sum of all rewards
// that are still to come.
func TestReturnsWithoutDiscountAreWhatWasStillToCome(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		groups := someGroups(t, true)
		plan := credit.Plan{Assignment: credit.TurnGAE, Discount: 1, Lambda: 1}
		if rapid.Bool().Draw(t, "by token") {
			plan.Assignment, plan.Tokens = credit.Identical, credit.GAE
		}
		got := must(t, plan, groups)
		for g, samples := range groups {
			for i, one := range samples {
				ahead := one.Rewards["final"]
				for k, c := range slices.Backward(one.Calls) {
					if c.Skip {
						continue
					}
					ahead += c.Reward
					for _, r := range got.Returns[g][i][k] {
						require.InDelta(t, ahead, r, 1e-9)
					}
				}
			}
		}
	})
}

// With λ = 0 the next value replaces all that follows, so the advantage is a difference
// of estimates.
func TestTurnGAEWithoutLambdaIsTheDifferenceOfValues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		groups := someGroups(t, true)
		for _, samples := range groups {
			for _, one := range samples {
				for k := range one.Calls {
					one.Calls[k].Before = one.Calls[k].Values[0]
				}
			}
		}
		want := must(t, credit.Plan{Assignment: credit.ValueDifference}, groups)
		got := must(t, credit.Plan{Assignment: credit.TurnGAE, Discount: 1}, groups)
		for g := range want.Call {
			for i := range want.Call[g] {
				requireClose(t, want.Call[g][i], got.Call[g][i])
			}
		}
	})
}

func TestValueDifferencesTelescope(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		groups := someGroups(t, true)
		got := must(t, credit.Plan{Assignment: credit.ValueDifference}, groups)
		for g, samples := range groups {
			for i, one := range samples {
				sum, want, first := 0.0, one.Rewards["final"], math.NaN()
				for k, c := range slices.Backward(one.Calls) {
					sum += got.Call[g][i][k]
					if !c.Skip {
						want, first = want+c.Reward, c.Before
					}
				}
				if !math.IsNaN(first) {
					require.InDelta(t, want-first, sum, 1e-9)
				}
			}
		}
	})
}
