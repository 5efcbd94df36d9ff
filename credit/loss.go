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
	// Call tells tokens of one call from those of another, by any numbers; nil means
	// that all are of one. A call lies in one row whole. What a token that is not
	// trained has there is not read.
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
	ClippedHigh float64 // likewise above the upper one, that of a dual clip included
	KL          float64 // k3 estimate of KL(sampling ‖ current): r − 1 − log r
	Gap         float64 // |log r|, the mismatch between sampler and trainer
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
