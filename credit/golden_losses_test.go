package credit_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit"
)

// goldenLosses is testdata/losses.json, which golden/losses.py writes.
type goldenLosses struct {
	Aggregations struct {
		Trajectories []int
		Length       int
		TokenMean    []float64 `json:"token_mean"`
		SequenceMean []float64 `json:"sequence_mean"`
		Constant     []float64
	}
	Cases []goldenLoss
}

type goldenLoss struct {
	Name      string
	Objective struct {
		Surrogate, Correction, KL string
		Low, High, Dual           float64
		Floor, Cap                float64
		Weight                    float64 `json:"kl_weight"`
		Bonus                     float64
	}
	Tokens struct {
		Call                                                              []int32
		Current, Sampled, Proximal, Reference, Entropy, Advantage, Weight []float64
	}
	Loss, Ratio, Reference, Importance, Capped, Rejected float64
	Gradient                                             []float64
	EntropyGradient                                      []float64 `json:"entropy_gradient"`
}

func (g goldenLoss) objective() credit.Objective {
	o := g.Objective
	return credit.Objective{
		Surrogate: map[string]credit.Surrogate{
			"ppo_clip":            credit.PPOClip{Low: o.Low, High: o.High, Dual: o.Dual},
			"gspo":                credit.GSPO{Low: o.Low, High: o.High},
			"cispo":               credit.CISPO{Low: o.Low, High: o.High},
			"dppo_tv":             credit.DPPO{Low: o.Low, High: o.High},
			"importance_sampling": credit.ImportanceSampling{},
			"cross_entropy":       credit.CrossEntropy{},
		}[o.Surrogate],
		Correction: credit.Correction{Kind: credit.CorrectionKind(o.Correction), Floor: o.Floor, Cap: o.Cap},
		KL:         credit.KL{Estimator: credit.Estimator(o.KL), Weight: o.Weight},
		Entropy:    o.Bonus,
	}
}

func (g goldenLoss) tokens() credit.Tokens {
	n, t := len(g.Tokens.Call), g.Tokens
	return credit.Tokens{
		Current: t.Current, Sampled: t.Sampled, Proximal: t.Proximal, Reference: t.Reference, Entropy: t.Entropy,
		Advantage: t.Advantage, Weight: t.Weight, Call: t.Call, Gradient: noise(n), EntropyGradient: noise(n),
	}
}

// noise returns numbers that Evaluate has to overwrite.
func noise(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = 9
	}
	return out
}

func readGoldenLosses(t testing.TB) goldenLosses {
	t.Helper()
	data, err := os.ReadFile("testdata/losses.json")
	require.NoError(t, err)
	var g goldenLosses
	require.NoError(t, json.Unmarshal(data, &g))
	require.Greater(t, len(g.Cases), 100)
	return g
}

// near requires agreement to 1e-9: relative for numbers larger than 1, else absolute.
func near(t testing.TB, want, got float64, name string) {
	t.Helper()
	require.InDelta(t, want, got, 1e-9*math.Max(1, math.Abs(want)), name)
}

func TestLossesMatchAnIndependentImplementation(t *testing.T) {
	t.Parallel()
	for _, g := range readGoldenLosses(t).Cases {
		o, in := g.objective(), g.tokens()
		require.NoError(t, o.Check(), g.Name)
		s := o.Evaluate(in)
		near(t, g.Loss, s.Loss, g.Name)
		for i := range in.Gradient {
			near(t, g.Gradient[i], in.Gradient[i], g.Name)
			near(t, g.EntropyGradient[i], in.EntropyGradient[i], g.Name)
		}
		near(t, g.Ratio, s.Ratio, g.Name)
		near(t, g.Reference, s.Reference, g.Name)
		near(t, g.Importance, s.Importance, g.Name)
		require.InDelta(t, g.Capped, s.Capped, 0, g.Name)
		require.InDelta(t, g.Rejected, s.Rejected, 0, g.Name)
	}
}

func TestAggregationsMatchAnIndependentImplementation(t *testing.T) {
	t.Parallel()
	g := readGoldenLosses(t).Aggregations
	d := credit.Denominators{Trajectory: g.Trajectories, Length: g.Length}
	for i, n := range g.Trajectories {
		if n == 0 {
			continue
		}
		require.InDelta(t, g.TokenMean[i], d.Weight(credit.TokenMean, i), 1e-15)
		require.InDelta(t, g.SequenceMean[i], d.Weight(credit.SequenceMean, i), 1e-15)
		require.InDelta(t, g.Constant[i], d.Weight(credit.Constant, i), 1e-15)
	}
}
