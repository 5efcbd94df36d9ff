package credit_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/credit"
)

func TestValueGradientsAreDerivatives(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) float64 { return rapid.Float64Range(-5, 5).Draw(t, name) }
		value, old, target := draw("value"), draw("old"), draw("return")
		l := credit.ValueLoss{Clip: rapid.SampledFrom([]float64{0, 0.2, 1}).Draw(t, "clip")}
		const h = 1e-6
		// Where the two losses cross there is a corner and no derivative.
		held := old + max(-l.Clip, min(l.Clip, value-old))
		if l.Clip > 0 && (math.Abs(math.Abs(value-old)-l.Clip) < 1e-3 || math.Abs(math.Abs(value-target)-math.Abs(held-target)) < 1e-3 && value != held) {
			t.Skip("a corner")
		}
		_, gradient := l.Evaluate(value, old, target)
		above, _ := l.Evaluate(value+h, old, target)
		below, _ := l.Evaluate(value-h, old, target)
		require.InDelta(t, (above-below)/(2*h), gradient, 1e-6)
	})
}

// The cases are worked by hand.
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
	require.Zero(t, credit.ExplainedVariance(nil, nil))
}
