package credit_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit"
)

// at returns tokens with these ratios, all of weight 1.
func at(advantage []float64, ratios ...float64) credit.Tokens {
	n := len(ratios)
	t := credit.Tokens{
		Current: make([]float64, n), Sampled: make([]float64, n), Advantage: advantage, Weight: make([]float64, n), Gradient: noise(n),
	}
	for i, r := range ratios {
		t.Sampled[i], t.Weight[i] = -math.Log(r), 1
	}
	return t
}

func TestClippedTokensGetNoGradientAndAreCountedBySide(t *testing.T) {
	t.Parallel()
	in := at([]float64{1, -1, -1, 1, -1}, 1.5, 0.5, 1.5, 0.5, 4)
	s := credit.Objective{Surrogate: credit.PPOClip{Low: 0.2, High: 0.28, Dual: 3}}.Evaluate(in)
	require.InDeltaSlice(t, []float64{0, 0, 1.5, -0.5, 0}, in.Gradient, 1e-12)
	require.InDelta(t, -1.28+0.8+1.5-0.5+3, s.Loss, 1e-12)
	require.Equal(t, 5, s.Count)
	require.InDelta(t, 1, s.ClippedLow, 0)
	require.InDelta(t, 2, s.ClippedHigh, 0, "the dual clip's too")
	require.InDelta(t, 3, s.Clipped(), 0)
	require.InDelta(t, 8.0/5, s.Ratio/5, 1e-12)
	require.InDelta(t, 4, s.RatioMax, 1e-12)
	s.Add(credit.Stats{Count: 1, RatioMax: 2})
	require.InDelta(t, 4, s.RatioMax, 1e-12, "the greatest is no sum")
}

func TestADualClipIsAboutBadTokensAlone(t *testing.T) {
	t.Parallel()
	in := at([]float64{1, -1}, 1.2, 1.2)
	credit.Objective{Surrogate: credit.PPOClip{Low: 0.2, High: 0.28, Dual: 1.1}}.Evaluate(in)
	require.InDeltaSlice(t, []float64{-1.2, 0}, in.Gradient, 1e-12)
}

// CISPO keeps the gradient of tokens that other losses clip away.
func TestCISPOKeepsTheGradientOfClippedTokens(t *testing.T) {
	t.Parallel()
	in := at([]float64{1, 1, -2}, 3, 0.1, 9)
	s := credit.Objective{Surrogate: credit.CISPO{Low: 1, High: 4}}.Evaluate(in)
	require.InDeltaSlice(t, []float64{-3, -0.1, 10}, in.Gradient, 1e-12)
	require.InDelta(t, 0, s.ClippedLow, 0)
	require.InDelta(t, 1, s.ClippedHigh, 0)
}

func TestABoundIsWithin(t *testing.T) {
	t.Parallel()
	for _, c := range []credit.Correction{
		{Kind: credit.Decoupled, Cap: 1}, {Kind: credit.MIS, Floor: 1, Cap: 1}, {Kind: credit.Sequence, Cap: 1},
		{Kind: credit.Geometric, Floor: 1, Cap: 1}, {Kind: credit.K3, Cap: math.SmallestNonzeroFloat64},
	} {
		in := at([]float64{1}, 1)
		in.Proximal = in.Sampled
		s := credit.Objective{Surrogate: credit.ImportanceSampling{}, Correction: c}.Evaluate(in)
		require.Zero(t, s.Capped, c)
		require.Zero(t, s.Rejected, c)
		require.InDelta(t, 1, s.Importance, 0, c)
	}
}

// A token that was almost impossible has ratios that overflow. They are clipped,
// truncated or rejected. If the advantage is 0, they change nothing.
func TestRatiosThatOverflowLeaveNoTrace(t *testing.T) {
	t.Parallel()
	const impossible = -1e30
	for name, s := range surrogates() {
		in := at([]float64{0}, 1)
		in.Current[0], in.Sampled[0] = -1, impossible
		credit.Objective{Surrogate: s}.Evaluate(in)
		if name != "cross-entropy" {
			require.Zero(t, in.Gradient[0], name)
		}
		for _, c := range corrections()[1:] {
			in := at([]float64{1}, 1)
			in.Current[0], in.Proximal = -1, []float64{-1}
			in.Sampled[0] = impossible
			got := credit.Objective{Surrogate: s, Correction: c}.Evaluate(in)
			require.InDelta(t, 1, got.Capped+got.Rejected, 0, "%s %v", name, c)
			require.False(t, math.IsNaN(in.Gradient[0]) || math.IsInf(in.Gradient[0], 0), "%s %v", name, c)

			in.Proximal[0], in.Sampled[0] = impossible, -1 // r overflows, its weight is 0
			got = credit.Objective{Surrogate: s, Correction: c}.Evaluate(in)
			if got.Rejected > 0 {
				require.Zero(t, in.Gradient[0], "%s %v", name, c)
			}
		}
	}
}
