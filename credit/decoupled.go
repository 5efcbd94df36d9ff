package credit

import "math"

// DecoupledPPO is PPO's clipped surrogate with the clip around the policy that
// the batch's first update starts from, and apart from it the weight of that
// policy against the one that sampled (Hilton et al., 2021, arXiv:2110.00641), the
// weight truncated as in V-trace (Espeholt et al., 2018, arXiv:1802.01561):
//
//	L_t = −w·min(r·A, clip(r, 1−Low, 1+High)·A)
//	r = π_θ / π_prox,  w = min(π_prox / μ, Cap), a constant for the derivative
//
// Its derivative by log π_θ is −w·r·A where the unclipped term is the smaller (or
// they are equal), else 0. A clip around μ would, with a lag, already bite before
// the first update, where the two versions differ. It is PPOClip, to the bit, where
// the policy that sampled is the proximal one and Cap is at least 1.
type DecoupledPPO struct {
	Low, High float64
	Cap       float64
}

// Evaluate implements Loss. Ratio and Clipped in Stats are of r; KL and Gap
// compare the current policy with the one that sampled, as those of PPOClip do.
func (p DecoupledPPO) Evaluate(t Tokens) Stats {
	var s Stats
	for i, w := range t.Weight {
		t.Gradient[i] = 0
		if w == 0 {
			continue
		}
		stale := t.Proximal[i] - t.Sampled[i]
		importance := math.Exp(stale)
		if importance > p.Cap {
			importance = p.Cap
			s.Capped++
		}
		logRatio, logWhole := t.Current[i]-t.Proximal[i], t.Current[i]-t.Sampled[i]
		r, a := math.Exp(logRatio), t.Advantage[i]
		free := r * a
		clipped := math.Min(math.Max(r, 1-p.Low), 1+p.High) * a
		w *= importance
		s.Count++
		s.Loss -= w * math.Min(free, clipped)
		s.Ratio += r
		s.KL += math.Exp(logWhole) - 1 - logWhole
		s.Gap += math.Abs(logWhole)
		s.Importance += importance
		s.Staleness += math.Abs(stale)
		if free <= clipped {
			t.Gradient[i] = -w * free
		} else {
			s.Clipped++
		}
	}
	return s
}
