package credit_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/credit"
)

// The expected numbers come from the formula in fifty decimal digits, the
// derivatives from its central difference; none of it shares code with the loss.
func TestDecoupledPPOMatchesNumbersComputedElsewhere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		current, proximal, sampled, advantage float64
		loss, gradient, importance            float64
	}{
		{-1.25, -1.0, -1.5, 0.75, -0.963019062515806, -0.9630190625158, 1.64872127070013},
		{-0.5, -1.0, -1.1, 1.5, -2.12192816270524, 0, 1.10517091807565},
		{-0.5, -1.0, -1.1, -1.5, 2.73317820058576, 2.7331782005858, 1.10517091807565},
		{-2.0, -1.0, -0.25, 1.0, -0.173773943450445, -0.1737739434504, 0.472366552741015},
		{-2.0, -1.0, -0.25, -1.0, 0.377893242192812, 0, 0.472366552741015},
		{-0.9, -1.0, -3.0, 0.5, -1.10517091807565, -1.1051709180756, 2},
		{-0.9, -1.0, -3.0, -2.0, 4.42068367230259, 4.4206836723026, 2},
		{-1.0, -1.0, -1.0, 0.3, -0.3, -0.3, 1},
		{-4.0, -4.0, -0.125, -0.6, 0.0124526027242198, 0.0124526027242, 0.0207543378736997},
	} {
		for _, weight := range []float64{1, 0.125} {
			in := credit.Tokens{
				Current: []float64{c.current}, Proximal: []float64{c.proximal}, Sampled: []float64{c.sampled},
				Advantage: []float64{c.advantage}, Weight: []float64{weight}, Gradient: []float64{9},
			}
			s := credit.DecoupledPPO{Low: 0.2, High: 0.28, Cap: 2}.Evaluate(in)
			require.InDelta(t, weight*c.loss, s.Loss, 1e-12, "%+v", c)
			require.InDelta(t, weight*c.gradient, in.Gradient[0], 1e-12, "%+v", c)
			require.InDelta(t, c.importance, s.Importance, 1e-12, "%+v", c)
			require.InDelta(t, math.Abs(c.proximal-c.sampled), s.Staleness, 1e-12)
			require.Equal(t, c.importance == 2, s.Capped == 1)
		}
	}
}

func TestDecoupledPPOIsPPOClipToTheBitWhereTheVersionsAreOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "tokens")
		draw := func(name string, lo, hi float64) []float64 {
			return rapid.SliceOfN(rapid.Float64Range(lo, hi), n, n).Draw(t, name)
		}
		in := credit.Tokens{
			Current: draw("current", -9, 0), Sampled: draw("sampled", -9, 0), Advantage: draw("advantage", -2, 2),
			Weight: draw("weight", 0, 1), Gradient: make([]float64, n),
		}
		want := credit.PPOClip{Low: 0.2, High: 0.28}.Evaluate(in)
		gradient := append([]float64(nil), in.Gradient...)
		in.Proximal = in.Sampled
		got := credit.DecoupledPPO{Low: 0.2, High: 0.28, Cap: 1}.Evaluate(in)
		require.Equal(t, gradient, in.Gradient)
		want.Importance = float64(want.Count) // of weight 1 each
		require.Equal(t, want, got)
	})
}

// The first update starts from the proximal policy itself: nothing is clipped,
// and the derivative is that of the weighted policy gradient.
func TestTheFirstDecoupledUpdateIsAWeightedPolicyGradient(t *testing.T) {
	t.Parallel()
	in := credit.Tokens{
		Current: []float64{-1, -2, -3}, Proximal: []float64{-1, -2, -3}, Sampled: []float64{-2, -0.5, -3},
		Advantage: []float64{1, -1, 2}, Weight: []float64{0.5, 0.5, 0.5}, Gradient: make([]float64, 3),
	}
	s := credit.DecoupledPPO{Low: 0.2, High: 0.28, Cap: 2}.Evaluate(in)
	require.InDeltaSlice(t, []float64{-0.5 * 2, 0.5 * math.Exp(-1.5), -0.5 * 2}, in.Gradient, 1e-12)
	require.Zero(t, s.Clipped)
	require.InDelta(t, 3, s.Ratio, 1e-12)
	require.InDelta(t, 1, s.Capped, 0, "e¹ is above the cap")
}

func TestAWeightAtTheCapIsNotTruncated(t *testing.T) {
	t.Parallel()
	in := credit.Tokens{
		Current: []float64{-1}, Proximal: []float64{-1}, Sampled: []float64{-1}, Advantage: []float64{1}, Weight: []float64{1}, Gradient: []float64{0},
	}
	s := credit.DecoupledPPO{Low: 0.2, High: 0.28, Cap: 1}.Evaluate(in)
	require.Zero(t, s.Capped)
	require.InDelta(t, 1, s.Importance, 0)

	in.Sampled[0] = -1e30 // next to impossible when it was sampled
	s = credit.DecoupledPPO{Low: 0.2, High: 0.28, Cap: 2}.Evaluate(in)
	require.InDelta(t, 1, s.Capped, 0)
	require.InDelta(t, 2, s.Importance, 0)
	require.InDelta(t, -2, in.Gradient[0], 0, "a weight that overflows is the cap")
}

func TestAMaskedSequenceHasNoDecoupledLoss(t *testing.T) {
	t.Parallel()
	in := credit.Tokens{
		Current: []float64{-1, -1}, Proximal: []float64{-2, -2}, Sampled: []float64{-3, -3}, Advantage: []float64{1, 1},
		Weight: make([]float64, 2), Gradient: []float64{9, 9},
	}
	require.Equal(t, credit.Stats{}, credit.DecoupledPPO{Low: 0.2, High: 0.28, Cap: 2}.Evaluate(in))
	require.Equal(t, []float64{0, 0}, in.Gradient)
}
