package credit_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/credit"
)

func surrogates() map[string]credit.Surrogate {
	return map[string]credit.Surrogate{
		"ppo clip":            credit.PPOClip{Low: 0.2, High: 0.28},
		"dual clip":           credit.PPOClip{Low: 0.2, High: 0.28, Dual: 1.5},
		"gspo":                credit.GSPO{Low: 0.1, High: 0.15},
		"cispo":               credit.CISPO{Low: 0.3, High: 0.4},
		"dppo":                credit.DPPO{Low: 0.1, High: 0.1},
		"importance sampling": credit.ImportanceSampling{},
		"cross-entropy":       credit.CrossEntropy{},
	}
}

func corrections() []credit.Correction {
	return []credit.Correction{
		{}, {Kind: credit.Decoupled, Cap: 1.2}, {Kind: credit.MIS, Floor: 0.7, Cap: 1.4}, {Kind: credit.Sequence, Cap: 1.5},
		{Kind: credit.Geometric, Floor: 0.8, Cap: 1.25}, {Kind: credit.K3, Cap: 0.1},
	}
}

// someObjective draws an objective, with any surrogate and any correction.
func someObjective(t *rapid.T) credit.Objective {
	return credit.Objective{
		Surrogate:  surrogates()[rapid.SampledFrom(sortedNames()).Draw(t, "surrogate")],
		Correction: rapid.SampledFrom(corrections()).Draw(t, "correction"),
		KL: credit.KL{
			Estimator: rapid.SampledFrom([]credit.Estimator{credit.KL1, credit.KL2, credit.KL3, credit.Unbiased}).Draw(t, "kl"),
			Weight:    rapid.SampledFrom([]float64{0, 0.3}).Draw(t, "kl weight"),
		},
		Entropy: rapid.SampledFrom([]float64{0, 0.1}).Draw(t, "bonus"),
	}
}

func sortedNames() []string {
	return []string{"ppo clip", "dual clip", "gspo", "cispo", "dppo", "importance sampling", "cross-entropy"}
}

// someTokens draws a row of up to three calls, numbered from first on, with context.
func someTokens(t *rapid.T, first int32) credit.Tokens {
	n := rapid.IntRange(1, 7).Draw(t, "tokens")
	draw := func(name string, lo, hi float64) []float64 {
		return rapid.SliceOfN(rapid.Float64Range(lo, hi), n, n).Draw(t, name)
	}
	in := credit.Tokens{
		Current: draw("current", -3, 0), Sampled: draw("sampled", -3, 0), Proximal: draw("proximal", -3, 0), Reference: draw("reference", -3, 0),
		Entropy: draw("entropy", 0, 3), Advantage: draw("advantage", -2, 2), Weight: draw("weight", 0.1, 1),
		Call: rapid.SliceOfN(rapid.Int32Range(first, first+2), n, n).Draw(t, "call"), Gradient: noise(n), EntropyGradient: noise(n),
	}
	for i := range in.Weight {
		if rapid.IntRange(0, 4).Draw(t, "masked") == 0 {
			in.Weight[i], in.Call[i] = 0, -1
		}
	}
	return in
}

// laid returns rows one after the other in one row, including their gradients.
func laid(rows ...credit.Tokens) credit.Tokens {
	var out credit.Tokens
	for _, r := range rows {
		out.Current, out.Sampled = append(out.Current, r.Current...), append(out.Sampled, r.Sampled...)
		out.Proximal, out.Reference = append(out.Proximal, r.Proximal...), append(out.Reference, r.Reference...)
		out.Entropy, out.Advantage = append(out.Entropy, r.Entropy...), append(out.Advantage, r.Advantage...)
		out.Weight, out.Call = append(out.Weight, r.Weight...), append(out.Call, r.Call...)
		out.Gradient, out.EntropyGradient = append(out.Gradient, r.Gradient...), append(out.EntropyGradient, r.EntropyGradient...)
	}
	return out
}

// picked returns the tokens of t at some places.
func picked(t credit.Tokens, places []int) credit.Tokens {
	one := func(i int) credit.Tokens {
		return credit.Tokens{
			Current: t.Current[i : i+1], Sampled: t.Sampled[i : i+1], Proximal: t.Proximal[i : i+1], Reference: t.Reference[i : i+1],
			Entropy: t.Entropy[i : i+1], Advantage: t.Advantage[i : i+1], Weight: t.Weight[i : i+1], Call: t.Call[i : i+1],
			Gradient: t.Gradient[i : i+1], EntropyGradient: t.EntropyGradient[i : i+1],
		}
	}
	var out []credit.Tokens
	for _, i := range places {
		out = append(out, one(i))
	}
	return laid(out...)
}

// Each token has the same gradient, however a batch is cut into rows, packed and padded,
// and in whatever order its tokens are. Only the tokens of a call must stay together.
func TestRowsPackingPaddingAndOrderDoNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := someObjective(t)
		rows := []credit.Tokens{someTokens(t, 0), someTokens(t, 3), someTokens(t, 6)}
		padding := someTokens(t, 0)
		clear(padding.Weight)
		var apart credit.Stats
		for _, r := range rows {
			apart.Add(o.Evaluate(r))
		}
		want := laid(rows[0], padding, rows[1], rows[2])
		for i := range padding.Weight {
			want.Gradient[len(rows[0].Weight)+i], want.EntropyGradient[len(rows[0].Weight)+i] = 0, 0
		}
		places := rapid.Permutation(indices(len(want.Weight))).Draw(t, "places")
		want = picked(want, places)
		got := laid(want)
		together := o.Evaluate(got)
		require.InDeltaSlice(t, want.Gradient, got.Gradient, 1e-9)
		require.Equal(t, want.EntropyGradient, got.EntropyGradient)
		require.Equal(t, apart.Count, together.Count)
		require.InDelta(t, apart.Loss, together.Loss, 1e-9)
		require.InDelta(t, apart.Rejected, together.Rejected, 0)
		require.InDelta(t, apart.Clipped(), together.Clipped(), 0)
	})
}

func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func TestWhatIsMaskedHasNoGradientAndNoPartInAnything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o, in := someObjective(t), someTokens(t, 0)
		s := o.Evaluate(in)
		other := laid(in)
		for i, w := range in.Weight {
			if w == 0 {
				require.Zero(t, in.Gradient[i])
				require.Zero(t, in.EntropyGradient[i])
				for _, x := range [][]float64{other.Current, other.Sampled, other.Proximal, other.Reference, other.Entropy, other.Advantage} {
					x[i] = math.NaN()
				}
			}
		}
		require.Equal(t, s, o.Evaluate(other))
		require.Equal(t, in.Gradient, other.Gradient)
	})
}

// frozen returns the loss after one log-probability has moved by h. What the formula
// treats as a constant, such as the ratio of CISPO, does not move.
func frozen(o credit.Objective, in credit.Tokens, i int, h float64) float64 {
	moved := laid(in)
	moved.Current[i] += h
	if _, ok := o.Surrogate.(credit.CISPO); ok { // the ratio and the correction's stay
		moved.Sampled[i] += h
		moved.Proximal[i] += h
	}
	return o.Evaluate(moved).Loss
}

func TestGradientsAreDerivativesOfTheLoss(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o, in := someObjective(t), someTokens(t, 0)
		switch o.Surrogate.(type) {
		case credit.CISPO:
			if o.KL.Estimator == credit.Unbiased { // its ratio is not a constant
				o.KL.Weight = 0
			}
		case credit.GSPO: // both forms have the same derivative if all tokens of a call have the same advantage and weight
			spread(in)
			if o.Correction.Kind == credit.Decoupled || o.Correction.Kind == credit.MIS {
				o.Correction = credit.Correction{}
			}
		}
		want := laid(in)
		o.Evaluate(want)
		for i := range in.Weight {
			const h = 1e-6
			at := o.Evaluate(laid(in)).Loss
			up, down := (frozen(o, in, i, h)-at)/h, (at-frozen(o, in, i, -h))/h
			if math.Abs(up-down) > 1e-3 {
				continue // a kink, where there is no derivative
			}
			require.InDelta(t, (up+down)/2, want.Gradient[i], 1e-5, "%#v token %d", o, i)
			bonus := laid(in)
			bonus.Entropy[i] += h
			require.InDelta(t, (o.Evaluate(bonus).Loss-at)/h, want.EntropyGradient[i], 1e-6)
		}
	})
}

// spread gives all trained tokens of a call the same advantage and the same weight.
func spread(in credit.Tokens) {
	for i, c := range in.Call {
		if c >= 0 {
			in.Advantage[i], in.Weight[i] = []float64{1, -0.7, 0.4}[c], []float64{0.5, 1, 0.25}[c]
		}
	}
}

func TestWithoutAGapEveryCorrectionIsNone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o, in := someObjective(t), someTokens(t, 0)
		in.Proximal = in.Sampled
		got := o.Evaluate(in)
		gradient := append([]float64(nil), in.Gradient...)
		if o.Correction.Corrects() && got.Count > 0 {
			require.InDelta(t, 1, got.Effective(), 1e-12)
			require.InDelta(t, got.Count, got.Importance, 0)
		}
		o.Correction = credit.Correction{}
		want := o.Evaluate(in)
		require.Equal(t, in.Gradient, gradient, "to the bit")
		require.InDelta(t, want.Loss, got.Loss, 0)
		require.Zero(t, want.Importance)
	})
}

func TestPartsThatMakeNoLossAreRefused(t *testing.T) {
	t.Parallel()
	sound := credit.Objective{Surrogate: credit.PPOClip{Low: 0.2, High: 0.2}, Correction: credit.Correction{Kind: credit.MIS, Floor: 0.5, Cap: 2}, KL: credit.KL{Estimator: credit.KL3, Weight: 1}}
	require.NoError(t, sound.Check())
	for name, spoil := range map[string]func(*credit.Objective){
		"no surrogate":       func(o *credit.Objective) { o.Surrogate = nil },
		"unknown correction": func(o *credit.Objective) { o.Correction.Kind = "guess" },
		"within 0.5 and 0":   func(o *credit.Objective) { o.Correction.Cap = 0 },
		"within 3 and 2":     func(o *credit.Objective) { o.Correction.Floor = 3 },
		"estimator":          func(o *credit.Objective) { o.KL.Estimator = "k4" },
	} {
		o := sound
		spoil(&o)
		err := o.Check()
		require.ErrorIs(t, err, credit.ErrObjective)
		require.ErrorContains(t, err, name)
	}
}
