package activities_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
)

// seenToken is a token of an update, with the ratio of its call.
type seenToken struct {
	current, sampled, advantage, call float64
}

func (s seenToken) ratio() float64 { return math.Exp(s.current - s.sampled) }

// outside returns 0 if a clip removes the gradient, else slope.
func outside(ratio, advantage, low, high, slope float64) float64 {
	if (advantage > 0 && ratio > high) || (advantage < 0 && ratio < low) {
		return 0
	}
	return slope
}

// Each loss of the spec is really the loss with that name: the gradients that an engine
// gets are compared with independent formulas.
func TestTheSpecsLossIsTheOneThatIsTrained(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		loss spec.Loss
		want func(seenToken) float64 // by the token's weight
	}{
		"ppo_clip": {spec.Loss{Type: credit.LossPPOClip, ClipLow: 0.1, ClipHigh: 0.5}, func(s seenToken) float64 {
			return outside(s.ratio(), s.advantage, 0.9, 1.5, -s.ratio()*s.advantage)
		}},
		"dual clip": {spec.Loss{Type: credit.LossPPOClip, ClipLow: 0.1, ClipHigh: 0.5, DualClip: 1.2}, func(s seenToken) float64 {
			if s.advantage < 0 && s.ratio() > 1.2 {
				return 0
			}
			return outside(s.ratio(), s.advantage, 0.9, 1.5, -s.ratio()*s.advantage)
		}},
		"gspo": {spec.Loss{Type: credit.LossGSPO, ClipLow: 0.1, ClipHigh: 0.2}, func(s seenToken) float64 {
			return outside(s.call, s.advantage, 0.9, 1.2, -s.call*s.advantage)
		}},
		"cispo": {spec.Loss{Type: credit.LossCISPO, ClipLow: 0.25, ClipHigh: 0.2}, func(s seenToken) float64 {
			return -min(max(s.ratio(), 0.75), 1.2) * s.advantage
		}},
		"dppo_tv": {spec.Loss{Type: credit.LossDPPO, ClipLow: 5e-4, ClipHigh: 1e-3}, func(s seenToken) float64 {
			moved := math.Exp(s.current) - math.Exp(s.sampled)
			if (s.advantage > 0 && moved > 1e-3) || (s.advantage < 0 && moved < -5e-4) {
				return 0
			}
			return -s.ratio() * s.advantage
		}},
		"importance_sampling": {spec.Loss{Type: credit.LossImportanceSampling}, func(s seenToken) float64 { return -s.ratio() * s.advantage }},
		"cross_entropy":       {spec.Loss{Type: credit.LossCrossEntropy}, func(seenToken) float64 { return -1 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, v, b, seen := stepOf(t, func(s *spec.Spec) { s.Loss = c.loss })
			changed := 0
			for i, r := range b.Rows {
				call := callRatio(r, seen[0].logprobs[i])
				for j, got := range seen[0].gradient[i] {
					if !r.Sampled[j+1] {
						require.Zero(t, got)
						continue
					}
					s := seenToken{float64(seen[0].logprobs[i][j]), float64(r.Logprobs[j+1]), float64(r.Advantages[j+1]), call}
					want := c.want(s)
					require.InDelta(t, want/float64(b.Denominators.Tokens), got, 1e-7)
					if math.Abs(want+s.ratio()*s.advantage) > 1e-9 {
						changed++
					}
				}
			}
			clips := c.loss.Type != credit.LossImportanceSampling && c.loss.Type != credit.LossCrossEntropy
			require.Equal(t, clips, v.Metrics["train/clip_fraction"] > 0)
			require.InDelta(t, v.Metrics["train/clip_fraction"], v.Metrics["train/clip_fraction_low"]+v.Metrics["train/clip_fraction_high"], 1e-12)
			require.Equal(t, c.loss.Type != credit.LossImportanceSampling, changed > 0)
			require.GreaterOrEqual(t, v.Metrics["train/ratio_max"], v.Metrics["train/ratio"])
		})
	}
}

// callRatio returns the ratio of GSPO for a row that is one call.
func callRatio(r model.BatchRow, logprobs []float32) float64 {
	sum, n := 0.0, 0.0
	for j, l := range logprobs {
		if r.Sampled[j+1] {
			sum, n = sum+float64(l)-float64(r.Logprobs[j+1]), n+1
		}
	}
	return math.Exp(sum / n)
}

func TestTheEntropyBonusReachesTheEngine(t *testing.T) {
	t.Parallel()
	_, with, b, seen := stepOf(t, func(s *spec.Spec) { s.Loss.Entropy = 0.02 })
	_, without, _, plain := stepOf(t, func(*spec.Spec) {})
	for i, r := range b.Rows {
		for j, got := range seen[0].entropy[i] {
			want := 0.0
			if r.Sampled[j+1] {
				want = -0.02 / float64(b.Denominators.Tokens)
			}
			require.InDelta(t, want, got, 1e-9)
			require.Zero(t, plain[0].entropy[i][j])
		}
		require.Equal(t, plain[0].gradient[i], seen[0].gradient[i])
	}
	require.InDelta(t, without.Metrics["train/loss"]-0.02*with.Metrics["train/entropy"], with.Metrics["train/loss"], 1e-12)
	require.NotEqual(t, without.Weights, with.Weights)
}

func TestTheConstantOfTheSpecIsTheDivisor(t *testing.T) {
	t.Parallel()
	gradient := func(s func(*spec.Spec)) float64 {
		_, _, _, seen := stepOf(t, func(all *spec.Spec) {
			all.Loss.Type = credit.LossCrossEntropy
			s(all)
		})
		last := seen[0].gradient[0]
		return float64(last[len(last)-1])
	}
	got := gradient(func(s *spec.Spec) { s.Loss.Aggregation, s.Loss.Length = "constant", 50 })
	require.InDelta(t, -1.0/(50*10), got, 1e-9, "ten trajectories")
}

func TestAPeakIsTheGreatestOfAllUpdates(t *testing.T) {
	t.Parallel()
	_, v, b, seen := stepOf(t, func(s *spec.Spec) { s.Training.Passes, s.Training.Optimizer.LearningRate = 3, 0.01 })
	require.Len(t, seen, 3)
	peaks := make([]float64, len(seen))
	for u, m := range seen {
		for i, r := range b.Rows {
			for j, l := range m.logprobs[i] {
				if r.Sampled[j+1] {
					peaks[u] = max(peaks[u], math.Exp(float64(l)-float64(r.Logprobs[j+1])))
				}
			}
		}
	}
	require.InDelta(t, max(peaks[0], peaks[1], peaks[2]), v.Metrics["train/ratio_max"], 1e-9)
	require.InDelta(t, peaks[2], v.Metrics["train/last_ratio_max"], 1e-9)
	require.NotEqual(t, peaks[0], peaks[2])
}

func TestRejectedTokensTeachNothingAndAreCounted(t *testing.T) {
	t.Parallel()
	_, v, b, seen := stepOf(t, func(s *spec.Spec) {
		s.Loss.Correction, s.Loss.ImportanceFloor, s.Loss.ImportanceCap = credit.MIS, 0.8, 1.2
	})
	rejected, weights, squares := 0.0, 0.0, 0.0
	for i, r := range b.Rows {
		for j, g := range seen[0].gradient[i] {
			importance := math.Exp(float64(seen[0].logprobs[i][j]) - float64(r.Logprobs[j+1])) // the policy of the first update is the proximal one
			if !r.Sampled[j+1] {
				continue
			}
			want := -importance * float64(r.Advantages[j+1]) / float64(b.Denominators.Tokens)
			if importance < 0.8 || importance > 1.2 {
				want, importance = 0, 0
				rejected++
			}
			weights, squares = weights+importance, squares+importance*importance
			require.InDelta(t, want, g, 1e-7)
		}
	}
	require.Positive(t, rejected)
	n := float64(b.Denominators.Tokens)
	require.InDelta(t, rejected/n, v.Metrics["train/rejected"], 1e-12)
	require.InDelta(t, weights/n, v.Metrics["train/importance_mean"], 1e-9)
	require.InDelta(t, weights*weights/(n*squares), v.Metrics["train/importance_ess"], 1e-9)
}

func TestALossThatNobodyKnowsEndsTheStep(t *testing.T) {
	t.Parallel()
	_, err := spec.Loss{Type: "guess"}.Objective()
	require.ErrorContains(t, err, `loss.type "guess"`)
	for kind := range objectives() {
		_, err := objectives()[kind].Objective()
		require.NoError(t, err, kind)
	}
}
