package credit_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit"
)

// goldenFeedback is testdata/feedback.json, which golden/feedback.py writes.
type goldenFeedback struct {
	Supervised  []goldenLoss
	Preferences []goldenPair
}

type goldenPair struct {
	Name                     string
	Beta                     float64
	Pair                     [4]float64
	Loss, Margin, Derivative float64
}

func (g goldenPair) pair() credit.Pair {
	return credit.Pair{Chosen: g.Pair[0], Rejected: g.Pair[1], ReferenceChosen: g.Pair[2], ReferenceRejected: g.Pair[3]}
}

func readGoldenFeedback(t *testing.T) goldenFeedback {
	t.Helper()
	data, err := os.ReadFile("testdata/feedback.json")
	require.NoError(t, err)
	var g goldenFeedback
	require.NoError(t, json.Unmarshal(data, &g))
	require.Len(t, g.Supervised, 8)
	require.Len(t, g.Preferences, 20)
	return g
}

func TestTheSupervisedLossMatchesAnIndependentImplementation(t *testing.T) {
	t.Parallel()
	for _, g := range readGoldenFeedback(t).Supervised {
		in, o := g.tokens(), g.objective()
		in.Sampled, in.Proximal, in.Advantage, in.Call = nil, nil, nil, nil // none is read
		l := credit.Supervised{KL: o.KL, Entropy: o.Entropy}
		require.NoError(t, l.Check(), g.Name)
		s := l.Evaluate(in)
		near(t, g.Loss, s.Loss, g.Name)
		near(t, g.Reference, s.Reference, g.Name)
		for i := range in.Gradient {
			near(t, g.Gradient[i], in.Gradient[i], g.Name)
			near(t, g.EntropyGradient[i], in.EntropyGradient[i], g.Name)
		}
	}
}

func TestThePreferenceLossMatchesAnIndependentImplementation(t *testing.T) {
	t.Parallel()
	for _, g := range readGoldenFeedback(t).Preferences {
		got := credit.Preference{Beta: g.Beta}.Evaluate(g.pair())
		near(t, g.Loss, got.Loss, g.Name)
		near(t, g.Margin, got.Margin, g.Name)
		near(t, g.Derivative, got.Derivative, g.Name)
	}
}

// The derivative by the rejected completion's tokens is the opposite of Derivative.
func TestThePreferenceDerivativeIsThatOfTheLoss(t *testing.T) {
	t.Parallel()
	const h = 1e-5
	p := credit.Preference{Beta: 0.3}
	x := credit.Pair{Chosen: -7, Rejected: -9, ReferenceChosen: -8, ReferenceRejected: -6.5}
	slope := func(move func(*credit.Pair, float64)) float64 {
		up, down := x, x
		move(&up, h)
		move(&down, -h)
		return (p.Evaluate(up).Loss - p.Evaluate(down).Loss) / (2 * h)
	}
	want := p.Evaluate(x).Derivative
	require.InDelta(t, want, slope(func(x *credit.Pair, h float64) { x.Chosen += h }), 1e-9)
	require.InDelta(t, -want, slope(func(x *credit.Pair, h float64) { x.Rejected += h }), 1e-9)
}

func TestAPairFarFromTheReferenceHasAFiniteLoss(t *testing.T) {
	t.Parallel()
	p := credit.Preference{Beta: 10}
	wrong := p.Evaluate(credit.Pair{Chosen: -1e6})
	require.InDelta(t, 1e7, wrong.Loss, 1e-9)
	require.InDelta(t, -10, wrong.Derivative, 0)
	right := p.Evaluate(credit.Pair{Rejected: -1e6})
	require.InDelta(t, 0, right.Loss, 0)
	require.InDelta(t, 0, right.Derivative, 0)
}

func TestFeedbackLossesWithoutAMeaningAreRefused(t *testing.T) {
	t.Parallel()
	for _, beta := range []float64{0, -0.1, math.NaN(), math.Inf(1)} {
		require.ErrorIs(t, credit.Preference{Beta: beta}.Check(), credit.ErrObjective)
	}
	require.NoError(t, credit.Preference{Beta: 0.1}.Check())
	require.ErrorContains(t, credit.Supervised{KL: credit.KL{Estimator: credit.Unbiased, Weight: 1}}.Check(), "unbiased")
	require.ErrorIs(t, credit.Supervised{KL: credit.KL{Estimator: "k4", Weight: 1}}.Check(), credit.ErrObjective)
}
