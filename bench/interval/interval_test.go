package interval_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/bench/interval"
)

// The expected values are those of a t interval for the logarithms 0, 0.1 and 0.2:
// mean 0.1, standard error 0.1/√3, t = 4.303.
func TestTheIntervalIsStudentsOverLogarithms(t *testing.T) {
	t.Parallel()
	mean, low, high := interval.Geometric([]float64{1, math.Exp(0.1), math.Exp(0.2)})
	half := 4.303 * 0.1 / math.Sqrt(3)
	require.InDelta(t, math.Exp(0.1), mean, 1e-12)
	require.InDelta(t, math.Exp(0.1-half), low, 1e-12)
	require.InDelta(t, math.Exp(0.1+half), high, 1e-12)
}

func TestTurningTheRatiosRoundTurnsTheInterval(t *testing.T) {
	t.Parallel()
	mean, low, high := interval.Geometric([]float64{1.2, 1.1, 0.9, 1.3})
	mean2, low2, high2 := interval.Geometric([]float64{1 / 1.2, 1 / 1.1, 1 / 0.9, 1 / 1.3})
	require.InDelta(t, 1, mean*mean2, 1e-12)
	require.InDelta(t, 1, low*high2, 1e-12)
	require.InDelta(t, 1, high*low2, 1e-12)
}

func TestOneRatioHasNoInterval(t *testing.T) {
	t.Parallel()
	_, low, high := interval.Geometric([]float64{1.2})
	require.True(t, math.IsNaN(low) && math.IsNaN(high), "%v to %v", low, high)
}

func TestTheMeanHasItsOwnUnit(t *testing.T) {
	t.Parallel()
	m := interval.Of([]float64{1, 2, 3})
	require.InDelta(t, 2, m.Value, 1e-12)
	require.InDelta(t, 4.303/math.Sqrt(3), m.Half, 1e-12)
	require.Equal(t, "2.000 ± 2.484", m.String())
	require.Equal(t, "5.000", interval.Of([]float64{5}).String())
}

// t is 2.920 with two degrees of freedom.
func TestTheOneSidedBoundIsNearerThanTheInterval(t *testing.T) {
	t.Parallel()
	x := []float64{1, 2, 3}
	require.InDelta(t, 2-2.920/math.Sqrt(3), interval.AtLeast(x), 1e-12)
	require.Greater(t, interval.AtLeast(x), interval.Of(x).Value-interval.Of(x).Half)
	require.True(t, math.IsNaN(interval.AtLeast(x[:1])))
}
