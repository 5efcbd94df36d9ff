package credit

import (
	"fmt"
	"math"
	"slices"
)

// Tokens are the tokens of one row in the form that a loss reads. A row is one call, or
// several that were merged. All slices have the same length. Gradient and EntropyGradient
// are written, not read.
type Tokens struct {
	Current []float64 // log-probability under the policy being trained
	Sampled []float64 // recorded when the token was sampled
	// Proximal is the log-probability under the policy that the batch's first update
	// started from; nil for objectives without a correction.
	Proximal []float64
	// Reference is the log-probability under the frozen reference; nil for objectives
	// without KL.
	Reference []float64
	// Entropy, in nats, is that of the distribution from which the token was drawn. It
	// may be nil; Stats then lacks it. An objective with an entropy bonus needs it.
	Entropy   []float64
	Advantage []float64
	// Weight is the token's weight in the loss of the batch. It is 0 if the token is not
	// trained.
	Weight []float64
	// Call tells tokens of different calls apart; the numbers may be any. nil means that
	// all tokens belong to one call. A row contains either all tokens of a call or none.
	// The entries of untrained tokens are not read.
	Call []int32
	// Gradient receives the derivative of the loss by Current.
	Gradient []float64
	// EntropyGradient receives the derivative of the loss by Entropy. It may be nil if
	// the objective has no entropy bonus.
	EntropyGradient []float64
}

// Stats are sums over trained tokens. Divide them by Count to get means.
type Stats struct {
	Count       int
	Loss        float64 // already weighted: its sum over a batch is the loss
	Ratio       float64 // of r
	RatioMax    float64 // the largest r, not a sum
	ClippedLow  float64 // tokens whose r was below the lower bound, if the bound decided the loss
	ClippedHigh float64 // the same for the upper bound, and for a dual clip
	KL          float64 // k3 estimate of KL(sampling ‖ current): x − 1 − log x with x = π_θ/μ
	Gap         float64 // |log π_θ − log μ|, the mismatch between sampler and trainer
	GapMax      float64 // the largest |log π_θ − log μ|, not a sum
	Entropy     float64 // in nats
	Reference   float64 // the objective's estimate of the KL to the reference

	// The next fields are for objectives with a correction, otherwise 0.
	Importance float64 // the weights w between proximal policy and sampler
	Squares    float64 // w²
	Capped     float64 // tokens whose weight was truncated
	Rejected   float64 // tokens that were left out
	Staleness  float64 // |log π_prox − log μ|, how far the versions are apart
}

// Clipped returns the sum of ClippedLow and ClippedHigh.
func (s Stats) Clipped() float64 { return s.ClippedLow + s.ClippedHigh }

// Effective returns the effective share of the trained tokens: the share that would teach
// as much if all tokens had the same weight. It is (Σw)² / (n·Σw²), and 0 without a
// correction.
func (s Stats) Effective() float64 {
	if s.Squares == 0 {
		return 0
	}
	return s.Importance / float64(s.Count) * (s.Importance / s.Squares)
}

// Add adds o to s.
func (s *Stats) Add(o Stats) {
	s.Count += o.Count
	s.Loss += o.Loss
	s.Ratio += o.Ratio
	s.RatioMax = math.Max(s.RatioMax, o.RatioMax)
	s.ClippedLow += o.ClippedLow
	s.ClippedHigh += o.ClippedHigh
	s.KL += o.KL
	s.Gap += o.Gap
	s.GapMax = math.Max(s.GapMax, o.GapMax)
	s.Entropy += o.Entropy
	s.Reference += o.Reference
	s.Importance += o.Importance
	s.Squares += o.Squares
	s.Capped += o.Capped
	s.Rejected += o.Rejected
	s.Staleness += o.Staleness
}

// Loss is a policy loss. Evaluate writes the derivatives of the loss of t's tokens and
// returns statistics of the loss.
type Loss interface {
	Evaluate(t Tokens) Stats
}

// ValueLoss is the loss of a critic: for one token, half the squared difference between
// its value and the return.
type ValueLoss struct {
	// Clip is how far the value may move in a step before the loss stops rewarding the
	// move, as the policy's ratio does (PPO's implementation; Engstrom et al., 2020,
	// arXiv:2005.12729, §3). 0 means no clipping.
	Clip float64
}

// Evaluate returns the loss of a value and its derivative by that value. old is the value
// before the step. With a Clip the loss is the larger of two: the loss of the value, and
// the loss of the value held within Clip of old. Within the bound the two are equal, and
// Evaluate returns the first without comparing them, because their rounded squares may
// differ. At a corner the derivative is the one of one of its sides.
func (l ValueLoss) Evaluate(value, old, target float64) (loss, gradient float64) {
	d := value - target
	if l.Clip <= 0 || math.Abs(value-old) <= l.Clip {
		return d * d / 2, d
	}
	// rest is the distance from the bound to the target, past the distance by which the
	// value is beyond the target. Both are measured in the direction in which the value
	// moved.
	rest, past := target-(old+l.Clip), d
	if value < old {
		rest, past = old-l.Clip-target, -d
	}
	if past <= 0 || rest > past { // the bound is further from the target, and it is a constant
		return rest * rest / 2, 0
	}
	return d * d / 2, d
}

// ExplainedVariance returns 1 − Var(target − value) / Var(target). It is 1 if values
// equal the targets up to a constant, 0 for any constant value, and less for worse
// values. It is 0 if the targets do not vary, because there is nothing to explain.
func ExplainedVariance(values, targets []float64) float64 {
	rest := make([]float64, len(targets))
	for i, t := range targets {
		rest[i] = t - values[i]
	}
	if len(targets) == 0 || constant(targets) { // after rounding, the variance of constant targets need not be 0
		return 0
	}
	all := variance(targets)
	if all == 0 {
		return 0
	}
	return 1 - variance(rest)/all
}

// variance returns the variance of xs, with their number as the divisor. It is 0 if there
// are none.
func variance(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	mean, squares := 0.0, 0.0
	for _, x := range xs {
		mean += x / float64(len(xs))
	}
	for _, x := range xs {
		squares += (x - mean) * (x - mean)
	}
	return squares / float64(len(xs))
}

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
