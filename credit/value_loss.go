package credit

import "math"

// ValueLoss is the loss of a critic: half the squared difference of its value from the
// return, for one token.
type ValueLoss struct {
	// Clip is how far the value may move from what it was before the step until the
	// loss stops rewarding it, as the policy's ratio does (PPO's implementation;
	// Engstrom et al., 2020, arXiv:2005.12729, §3). 0 does not clip.
	Clip float64
}

// Evaluate is the loss of a value and its derivative by that value; old is what
// the value was before the step. With a Clip the loss is the larger of that of the
// value and that of the value held within Clip of old. The two are one as long as the
// value is within the bound: that decides, since their rounded squares differ even
// there. At a corner the gradient is that of one of the sides.
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

// ExplainedVariance is 1 − Var(target − value) / Var(target): 1 where values are
// the targets up to a constant, 0 for any constant, less for what is worse than
// that. It is 0 where the targets do not vary, since nothing is to be explained.
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

// variance divides by the number of xs; of none it is 0.
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
