package credit

import "math"

// Tokens are the tokens of one sequence as a loss sees them. All slices have one
// length. Gradient is written, not read.
type Tokens struct {
	Current []float64 // log-probability under the policy being trained
	Sampled []float64 // recorded when the token was sampled
	// Proximal is the log-probability under the policy that the batch's first update
	// started from; nil for losses that don't read it.
	Proximal  []float64
	Advantage []float64
	// Weight of the token in the batch's loss, 0 where it is not trained.
	Weight []float64
	// Gradient receives the derivative of the loss by Current.
	Gradient []float64
}

// Stats are sums over trained tokens; divide by Count.
type Stats struct {
	Count   int
	Loss    float64 // already weighted: its sum over a batch is the loss
	Ratio   float64 // of r
	Clipped float64 // tokens whose gradient the clip removed
	KL      float64 // k3 estimate of KL(sampling ‖ current): r − 1 − log r
	Gap     float64 // |log r|, the mismatch between sampler and trainer

	// Of losses that correct for the version that sampled; else 0.
	Importance float64 // the weights between the versions
	Capped     float64 // tokens whose weight was truncated
	Staleness  float64 // |log π_prox − log μ|, how far the versions are apart
}

// Add accumulates o into s.
func (s *Stats) Add(o Stats) {
	s.Count += o.Count
	s.Loss += o.Loss
	s.Ratio += o.Ratio
	s.Clipped += o.Clipped
	s.KL += o.KL
	s.Gap += o.Gap
	s.Importance += o.Importance
	s.Capped += o.Capped
	s.Staleness += o.Staleness
}

// Loss is a policy loss.
type Loss interface {
	Evaluate(Tokens) Stats
}

// PPOClip is the clipped surrogate of PPO (Schulman et al., 2017,
// arXiv:1707.06347) with separate bounds below and above (DAPO,
// arXiv:2503.14476):
//
//	L_t = −min(r·A, clip(r, 1−Low, 1+High)·A),  r = exp(Current − Sampled)
//
// Its derivative by Current is −r·A where the unclipped term is the smaller (or
// they are equal), else 0.
type PPOClip struct {
	Low, High float64
}

// Evaluate implements Loss.
func (p PPOClip) Evaluate(t Tokens) Stats {
	var s Stats
	for i, w := range t.Weight {
		t.Gradient[i] = 0
		if w == 0 {
			continue
		}
		logRatio := t.Current[i] - t.Sampled[i]
		r, a := math.Exp(logRatio), t.Advantage[i]
		free := r * a
		clipped := math.Min(math.Max(r, 1-p.Low), 1+p.High) * a
		s.Count++
		s.Loss -= w * math.Min(free, clipped)
		s.Ratio += r
		s.KL += r - 1 - logRatio
		s.Gap += math.Abs(logRatio)
		if free <= clipped {
			t.Gradient[i] = -w * free
		} else {
			s.Clipped++
		}
	}
	return s
}

// CrossEntropy is −log p of the tokens themselves, for training on
// demonstrations; advantages and sampled log-probabilities are not read.
type CrossEntropy struct{}

// Evaluate implements Loss.
func (CrossEntropy) Evaluate(t Tokens) Stats {
	var s Stats
	for i, w := range t.Weight {
		t.Gradient[i] = -w
		if w != 0 {
			s.Count++
			s.Loss -= w * t.Current[i]
		}
	}
	return s
}
