package credit_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/credit"
)

// Some values are drawn from a grid, so that they hit bounds, targets and corners. At a
// corner the gradient lies between the slopes of its two sides.
func TestValueGradientsAreDerivatives(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.OneOf(rapid.Float64Range(-5, 5), rapid.Map(rapid.IntRange(-60, 60), func(n int) float64 { return float64(n) / 20 }))
		value, old, target := numbers.Draw(t, "value"), numbers.Draw(t, "old"), numbers.Draw(t, "return")
		l := credit.ValueLoss{Clip: rapid.SampledFrom([]float64{0, 0.2, 0.5, 1}).Draw(t, "clip")}
		const h = 1e-6
		here, gradient := l.Evaluate(value, old, target)
		above, _ := l.Evaluate(value+h, old, target)
		below, _ := l.Evaluate(value-h, old, target)
		left, right := (here-below)/h, (above-here)/h
		require.GreaterOrEqual(t, gradient, min(left, right)-2e-6)
		require.LessOrEqual(t, gradient, max(left, right)+2e-6)
	})
}

// Within the bound there is one loss, whatever rounding makes of old + (value − old).
func TestAValueWithinItsBoundLearnsAsWithoutOne(t *testing.T) {
	t.Parallel()
	clipped := credit.ValueLoss{Clip: 0.5}
	_, gradient := clipped.Evaluate(-0.15, -0.5, 0)
	require.InDelta(t, -0.15, gradient, 0)
	for i := -100; i <= 100; i++ {
		for j := -100; j <= 100; j++ {
			value, old := float64(i)/100, float64(j)/100
			if math.Abs(value-old) > 0.5 {
				continue
			}
			for _, target := range []float64{-1, 0, 0.3} {
				loss, gradient := clipped.Evaluate(value, old, target)
				free, slope := credit.ValueLoss{}.Evaluate(value, old, target)
				require.Equal(t, [2]float64{free, slope}, [2]float64{loss, gradient}, "value %v, old %v, return %v", value, old, target)
			}
		}
	}
}

// The expected numbers were computed by hand.
func TestAClippedValueLearnsNothingFromGoingFurther(t *testing.T) {
	t.Parallel()
	l := credit.ValueLoss{Clip: 0.5}
	for name, c := range map[string]struct{ value, old, target, loss, gradient float64 }{
		"within the bound":                {0.25, 0, 1, 0.28125, -0.75},
		"beyond it, towards the return":   {0.75, 0, 1, 0.125, 0},
		"beyond it, away from the return": {-0.75, 0, 1, 1.53125, -1.75},
		"beyond the return":               {2, 0, 1, 0.5, 1},
		"where it was":                    {1, 1, 1, 0, 0},
	} {
		loss, gradient := l.Evaluate(c.value, c.old, c.target)
		require.InDelta(t, c.loss, loss, 1e-15, name)
		require.InDelta(t, c.gradient, gradient, 1e-15, name)
	}
	loss, gradient := credit.ValueLoss{}.Evaluate(0.75, 0, 1)
	require.InDelta(t, 0.03125, loss, 1e-15)
	require.InDelta(t, -0.25, gradient, 1e-15)
}

func TestExplainedVarianceIsThatOfThePrediction(t *testing.T) {
	t.Parallel()
	targets := []float64{0, 1, 1, 0}
	require.InDelta(t, 1, credit.ExplainedVariance([]float64{3, 4, 4, 3}, targets), 1e-15, "a constant error")
	require.InDelta(t, 0, credit.ExplainedVariance([]float64{7, 7, 7, 7}, targets), 1e-15, "a constant")
	require.InDelta(t, 0.75, credit.ExplainedVariance([]float64{0, 0.5, 0.5, 0}, targets), 1e-15)
	require.InDelta(t, -3, credit.ExplainedVariance([]float64{1, 0, 0, 1}, targets), 1e-15, "the opposite")
	require.Zero(t, credit.ExplainedVariance([]float64{1, 2}, []float64{1, 1}), "nothing to explain")
	require.Zero(t, credit.ExplainedVariance([]float64{0, 0.5, 1, 0, 0, 0}, []float64{0.1, 0.1, 0.1, 0.1, 0.1, 0.1}), "nor where the mean is rounded")
	require.Zero(t, credit.ExplainedVariance(nil, nil))
}
