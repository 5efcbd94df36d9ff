package credit

import "math"

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
