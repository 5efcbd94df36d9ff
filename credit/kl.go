package credit

import (
	"fmt"
	"math"
	"slices"
)

// Estimator names an estimate of KL(π_θ ‖ π_ref) from one token.
type Estimator string

// The estimators (Schulman, "Approximating KL divergence", 2020), with
// d = log π_ref − log π_θ and, after the arrow, the derivative by log π_θ.
const (
	// KL1 is −d → 1. As a loss it teaches nothing about the reference: its derivative
	// does not depend on the reference, and its mean over what π_θ samples is 0.
	KL1 Estimator = "k1"
	// KL2 is d²/2 → −d. The mean of its derivative is right, but its value is biased.
	KL2 Estimator = "k2"
	// KL3 is e^d − 1 − d → 1 − e^d. Its value is unbiased, and its derivative is the
	// derivative of KL(π_ref ‖ π_θ).
	KL3 Estimator = "k3"
	// Unbiased is KL3 times π_θ/μ, which is not a constant for the derivative
	// (DeepSeek-V3.2, arXiv:2512.02556): → −d·π_θ/μ. The means of its value and of its
	// derivative are right over what μ sampled, whichever version μ was.
	Unbiased Estimator = "unbiased"
)

// KL is a penalty for leaving the reference. Its value is added to the loss of each
// trained token, times Weight and the token's own weight. A correction does not multiply
// it, and a token that a correction rejects still has it.
type KL struct {
	Estimator Estimator
	Weight    float64 // 0 means no penalty
}

// Estimate returns the estimate of KL(μ ‖ π_ref) from a token that μ sampled: KL1, KL2 or
// KL3 of its log-probabilities. For Unbiased it is KL3, because the ratio is 1.
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

// term returns the estimate of token i and its derivative by log π_θ.
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

// penalized returns the groups with a penalty for leaving the reference: token t of a
// call has the reward
//
//	−Weight·kl_t,  kl_t an estimate of KL(μ ‖ π_ref) by log μ_t − log π_ref,t
//
// in addition to all other rewards (PPO of Ouyang et al., 2022, arXiv:2203.02155; RLOO,
// arXiv:2402.14740; REINFORCE++, arXiv:2501.03262). If each token has its own advantage
// (GAE), the penalty is the reward of its token. Otherwise the penalties of a call are
// added to its own reward, and the rewards of a trajectory's calls are part of the
// trajectory's reward before it is compared with others. Calls whose tokens are not
// trained have no penalty.
func (p Plan) penalized(groups [][]Trajectory) [][]Trajectory {
	if p.KL.Weight == 0 {
		return groups
	}
	out := make([][]Trajectory, len(groups))
	for g, samples := range groups {
		out[g] = slices.Clone(samples)
		for i, t := range samples {
			calls := slices.Clone(t.Calls)
			for k, c := range calls {
				if !c.Trains() {
					continue
				}
				calls[k].penalties = make([]float64, c.Tokens)
				for j := range c.Tokens {
					calls[k].penalties[j] = -p.KL.Weight * p.KL.Estimate(c.Sampled[j], c.Reference[j])
				}
			}
			out[g][i].Calls = calls
		}
	}
	return out
}

// check refuses a call that can't be compared with the reference.
func (k KL) check(c Call) error {
	if k.Weight == 0 {
		return nil
	}
	for i, numbers := range [][]float64{c.Sampled, c.Reference} {
		name := []string{"log-probabilities", "log-probabilities under the reference"}[i]
		if len(numbers) != c.Tokens {
			return fmt.Errorf("%w: %d %s for %d tokens", ErrEstimate, len(numbers), name, c.Tokens)
		}
		if at := infinite(numbers); at >= 0 {
			return fmt.Errorf("%w: %s: that of token %d is %v", ErrEstimate, name, at, numbers[at])
		}
	}
	return nil
}
