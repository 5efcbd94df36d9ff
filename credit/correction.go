package credit

import "math"

// CorrectionKind names how a loss accounts for a sampler that differs from the policy
// from which the batch's first update starts.
type CorrectionKind string

// The corrections, all by ρ = π_prox/μ, which is a constant for derivatives. An empty
// kind is Uncorrected.
const (
	// Uncorrected applies no weight; r is then π_θ/μ.
	Uncorrected CorrectionKind = "none"
	// Decoupled weighs each token by min(ρ, Cap). This is decoupled PPO (Hilton et al.,
	// 2021, arXiv:2110.00641) with the weight truncated as in V-trace (Espeholt et al.,
	// 2018, arXiv:1802.01561). It is also known as truncated importance sampling of
	// tokens.
	Decoupled CorrectionKind = "decoupled"
	// MIS weighs a token by ρ and leaves it out where ρ is not within Floor and Cap
	// (masked importance sampling; IcePop).
	MIS CorrectionKind = "mis"
	// Sequence weighs the tokens of a call by min(Πρ, Cap).
	Sequence CorrectionKind = "sequence"
	// Geometric leaves a call out unless exp(mean log ρ) is within Floor and Cap. All
	// other weights are 1.
	Geometric CorrectionKind = "geometric"
	// K3 leaves a call out if mean(ρ − 1 − log ρ), the k3 estimate of KL(μ ‖ π_prox), is
	// above Cap. All other weights are 1.
	K3 CorrectionKind = "k3"
)

// Corrections returns all kinds of correction.
func Corrections() []CorrectionKind {
	return []CorrectionKind{Uncorrected, Decoupled, MIS, Sequence, Geometric, K3}
}

// Correction is a kind with its bounds. A number that is at a bound is within it.
type Correction struct {
	Kind       CorrectionKind
	Floor, Cap float64
}

// Corrects reports whether the objective needs Tokens.Proximal.
func (c Correction) Corrects() bool { return c.Kind != "" && c.Kind != Uncorrected }

// importance is the weight of a token.
type importance struct {
	weight           float64
	capped, rejected bool
}

// importances returns the importance weight of each of a row's tokens.
func (c Correction) importances(t Tokens, all calls) []importance {
	stale := func(i int) float64 { return t.Proximal[i] - t.Sampled[i] }
	var of func(token int) float64 // the ratio or divergence that decides the weight of a token
	switch c.Kind {
	case Sequence:
		of = exponential(all.spread(all.sums(stale)))
	case Geometric:
		of = exponential(all.spread(all.means(stale)))
	case K3:
		mean := all.spread(all.means(func(i int) float64 { return k3(stale(i)) }))
		of = func(i int) float64 { return mean[i] }
	default:
		of = func(i int) float64 { return math.Exp(stale(i)) }
	}
	out := make([]importance, len(t.Weight))
	for i, w := range t.Weight {
		if w != 0 {
			out[i] = c.importance(of(i))
		}
	}
	return out
}

func exponential(x []float64) func(token int) float64 {
	return func(i int) float64 { return math.Exp(x[i]) }
}

// importance returns the weight of a token whose ratio or divergence is x.
func (c Correction) importance(x float64) importance {
	truncates := c.Kind == Decoupled || c.Kind == Sequence
	within := x >= c.Floor && x <= c.Cap // false for NaN
	switch {
	case truncates && x > c.Cap:
		return importance{weight: c.Cap, capped: true}
	case !truncates && !within:
		return importance{rejected: true}
	case truncates || c.Kind == MIS:
		return importance{weight: x}
	}
	return importance{weight: 1}
}

// k3 returns the third of Schulman's estimators of a divergence ("Approximating KL
// divergence", 2020) for a log-ratio d: e^d − 1 − d, which is never negative.
func k3(d float64) float64 { return math.Expm1(d) - d }
