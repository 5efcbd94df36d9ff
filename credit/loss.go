package credit

import "math"

// Tokens are the tokens of one row as a loss sees them: a call, or several that
// were merged. All slices have one length. Gradient and EntropyGradient are
// written, not read.
type Tokens struct {
	Current []float64 // log-probability under the policy being trained
	Sampled []float64 // recorded when the token was sampled
	// Proximal is the log-probability under the policy that the batch's first update
	// started from; nil for objectives without a correction.
	Proximal []float64
	// Reference is the log-probability under the frozen reference; nil for objectives
	// without KL.
	Reference []float64
	// Entropy, in nats, of the distribution that the token is of; nil leaves it out of
	// Stats, and an objective with an entropy bonus needs it.
	Entropy   []float64
	Advantage []float64
	// Weight of the token in the batch's loss, 0 where it is not trained.
	Weight []float64
	// Call tells tokens of one call from tokens of another, by any numbers; nil means
	// that all are of one call. A call lies in one row completely. The entries of
	// untrained tokens are not read.
	Call []int32
	// Gradient receives the derivative of the loss by Current.
	Gradient []float64
	// EntropyGradient receives that by Entropy; it may be nil without an entropy bonus.
	EntropyGradient []float64
}

// Stats are sums over trained tokens; divide by Count.
type Stats struct {
	Count       int
	Loss        float64 // already weighted: its sum over a batch is the loss
	Ratio       float64 // of r
	RatioMax    float64 // the greatest r, no sum
	ClippedLow  float64 // tokens whose r was below the lower bound, and the bound decided
	ClippedHigh float64 // likewise above the upper bound, including a dual clip
	KL          float64 // k3 estimate of KL(sampling ‖ current): r − 1 − log r
	Gap         float64 // |log r|, the mismatch between sampler and trainer
	GapMax      float64 // the greatest |log r|, no sum
	Entropy     float64 // in nats
	Reference   float64 // the objective's estimate of the KL to the reference

	// Of objectives with a correction; else 0.
	Importance float64 // the weights w between proximal policy and sampler
	Squares    float64 // w²
	Capped     float64 // tokens whose weight was truncated
	Rejected   float64 // tokens that were left out
	Staleness  float64 // |log π_prox − log μ|, how far the versions are apart
}

// Clipped is ClippedLow and ClippedHigh together.
func (s Stats) Clipped() float64 { return s.ClippedLow + s.ClippedHigh }

// Effective is the share of the trained tokens that would teach as much if all
// had one weight: (Σw)² / (n·Σw²), 0 without a correction.
func (s Stats) Effective() float64 {
	if s.Squares == 0 {
		return 0
	}
	return s.Importance / float64(s.Count) * (s.Importance / s.Squares)
}

// Add accumulates o into s.
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

// Loss is a policy loss: it writes the derivatives of the loss of t's tokens and
// describes it.
type Loss interface {
	Evaluate(t Tokens) Stats
}

// ValueLoss is the loss of a critic: half the squared difference of its value from the
// return, for one token.
type ValueLoss struct {
	// Clip is how far the value may move from its value before the step before the loss
	// stops rewarding the move, as the policy's ratio does (PPO's implementation;
	// Engstrom et al., 2020, arXiv:2005.12729, §3). 0 does not clip.
	Clip float64
}

// Evaluate returns the loss of a value and its derivative by that value; old is the value
// before the step. With a Clip the loss is the larger of two: the loss of the value, and
// the loss of the value held within Clip of old. Within the bound the two are equal, and
// the first is used without comparing them, since their rounded squares may differ. At a
// corner it has the gradient of one of the sides.
func (l ValueLoss) Evaluate(value, old, target float64) (loss, gradient float64) {
	d := value - target
	if l.Clip <= 0 || math.Abs(value-old) <= l.Clip {
		return d * d / 2, d
	}
	// rest is how far the bound is from the target, and past how far the value is
	// beyond the target, both seen in the direction in which the value moved.
	rest, past := target-(old+l.Clip), d
	if value < old {
		rest, past = old-l.Clip-target, -d
	}
	if past <= 0 || rest > past { // the bound is further from the target, and does not move with the value
		return rest * rest / 2, 0
	}
	return d * d / 2, d
}

// ExplainedVariance is 1 − Var(target − value) / Var(target): 1 if values equal the
// targets up to a constant, 0 for any constant, less for worse values. It is 0 if the
// targets do not vary, since there is nothing to explain.
func ExplainedVariance(values, targets []float64) float64 {
	rest := make([]float64, len(targets))
	for i, t := range targets {
		rest[i] = t - values[i]
	}
	if len(targets) == 0 || constant(targets) { // whose variance need not be 0 once it is rounded
		return 0
	}
	all := variance(targets)
	if all == 0 {
		return 0
	}
	return 1 - variance(rest)/all
}

// variance divides by the number of xs; it is 0 if there are none.
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
