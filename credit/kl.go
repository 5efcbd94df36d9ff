package credit

import "math"

// Estimator names an estimate of KL(π_θ ‖ π_ref) from one token.
type Estimator string

// The estimators (Schulman, "Approximating KL divergence", 2020), with
// d = log π_ref − log π_θ and, after the arrow, the derivative by log π_θ.
const (
	// KL1 is −d → 1. As a loss it teaches nothing about the reference: its derivative
	// does not depend on it, and is 0 in the mean over what π_θ samples.
	KL1 Estimator = "k1"
	// KL2 is d²/2 → −d. Its derivative is right in the mean, its value biased.
	KL2 Estimator = "k2"
	// KL3 is e^d − 1 − d → 1 − e^d. Its value is right in the mean, its derivative that
	// of KL(π_ref ‖ π_θ).
	KL3 Estimator = "k3"
	// Unbiased is KL3 times π_θ/μ, which is no constant for the derivative
	// (DeepSeek-V3.2, arXiv:2512.02556): → −d·π_θ/μ. Value and derivative are right in
	// the mean over what μ sampled, whichever version that was.
	Unbiased Estimator = "unbiased"
)

// KL is a penalty for leaving the reference. Its value is added to the loss of
// each trained token, times Weight and the token's own weight; no correction
// multiplies it, and a token that one rejects still has it.
type KL struct {
	Estimator Estimator
	Weight    float64 // 0 is none
}

// Estimate is the estimate of KL(μ ‖ π_ref) from a token that μ sampled, by its
// log-probabilities: KL1, KL2 or KL3. Of Unbiased it is KL3, as the ratio is 1.
func (k KL) Estimate(sampled, reference float64) float64 {
	d := reference - sampled
	switch k.Estimator {
	case KL1:
		return -d
	case KL2:
		return d * d / 2
	}
	return k3(d)
}

// term is the estimate of token i, and its derivative by log π_θ.
func (k KL) term(t Tokens, i int) (value, derivative float64) {
	d := t.Reference[i] - t.Current[i]
	switch k.Estimator {
	case KL1:
		return -d, 1
	case KL2:
		return d * d / 2, -d
	case Unbiased:
		r := math.Exp(t.Current[i] - t.Sampled[i])
		return r * k3(d), -r * d
	}
	return k3(d), -math.Expm1(d)
}
