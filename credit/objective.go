package credit

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrObjective is wrapped by every error of Objective.Check.
var ErrObjective = errors.New("bad objective")

// Objective is a policy loss put together from its parts. The loss of each trained token
// is
//
//	L_t = w·surrogate(r, A) + KL.Weight·kl − Entropy·H
//
// times the token's own weight. w is the weight of the correction. With a correction, the
// surrogate's ratio is π_θ/π_prox, and w accounts for the difference between π_prox and
// the policy that sampled. Without one the ratio is π_θ/μ. So no gap is corrected twice.
// PPOClip with Decoupled is decoupled PPO. With a lag, a clip around μ would take effect
// even before the first update, because the two versions already differ.
type Objective struct {
	Surrogate  Surrogate
	Correction Correction
	KL         KL
	Entropy    float64 // weight of the bonus for entropy H
}

// Check returns an error if the objective is not a valid loss.
func (o Objective) Check() error {
	c := o.Correction
	switch {
	case o.Surrogate == nil:
		return fmt.Errorf("%w: it has no surrogate", ErrObjective)
	case !slices.Contains(Corrections(), cmp.Or(c.Kind, Uncorrected)):
		return fmt.Errorf("%w: unknown correction %q", ErrObjective, c.Kind)
	case c.Corrects() && (!positive(c.Cap) || c.Floor < 0 || c.Floor > c.Cap):
		return fmt.Errorf("%w: correction %q within %v and %v", ErrObjective, c.Kind, c.Floor, c.Cap)
	case o.KL.Weight != 0 && !slices.Contains([]Estimator{KL1, KL2, KL3, Unbiased}, o.KL.Estimator):
		return fmt.Errorf("%w: unknown estimator of KL %q", ErrObjective, o.KL.Estimator)
	}
	return nil
}

func positive(x float64) bool { return x > 0 && !math.IsInf(x, 1) }

// Evaluate implements Loss. KL and Gap in Stats compare the current policy with the
// one that sampled, whatever the correction.
func (o Objective) Evaluate(t Tokens) Stats {
	clear(t.Gradient)
	clear(t.EntropyGradient)
	s := o.surrogate(t)
	o.regularize(t, &s)
	return s
}

// surrogate writes the gradient of the part that depends on advantages, and returns its
// Stats.
func (o Objective) surrogate(t Tokens) Stats {
	var s Stats
	old, all := t.Sampled, newCalls(t)
	var weights []importance
	if o.Correction.Corrects() {
		old, weights = t.Proximal, o.Correction.importances(t, all)
	}
	ratio := o.ratios(t, old, all)
	for i, w := range t.Weight {
		if w == 0 {
			continue
		}
		r := ratio(i)
		s.compare(t, i, r)
		if weights != nil {
			s.weigh(weights[i], math.Abs(t.Proximal[i]-t.Sampled[i]))
			if weights[i].rejected {
				continue // 0 times a ratio that overflowed would be no number
			}
			w *= weights[i].weight
		}
		x := o.Surrogate.term(token{t.Current[i], old[i], r, t.Advantage[i]})
		s.Loss += w * x.loss
		t.Gradient[i] = w * x.derivative
		s.ClippedLow += count(x.low)
		s.ClippedHigh += count(x.high)
	}
	return s
}

// ratios returns a function that returns r of a token.
func (o Objective) ratios(t Tokens, old []float64, all calls) func(token int) float64 {
	apart := func(i int) float64 { return t.Current[i] - old[i] }
	if o.Surrogate.byCall() {
		return exponential(all.spread(all.means(apart)))
	}
	return func(i int) float64 { return math.Exp(apart(i)) }
}

// regularize adds the parts that do not depend on advantages: KL and entropy.
func (o Objective) regularize(t Tokens, s *Stats) {
	for i, w := range t.Weight {
		if w == 0 {
			continue
		}
		if o.KL.Weight != 0 {
			value, derivative := o.KL.term(t, i)
			s.Reference += value
			s.Loss += w * o.KL.Weight * value
			t.Gradient[i] += w * o.KL.Weight * derivative
		}
		if t.Entropy != nil {
			s.Entropy += t.Entropy[i]
		}
		if o.Entropy != 0 {
			s.Loss -= w * o.Entropy * t.Entropy[i]
			t.EntropyGradient[i] = -w * o.Entropy
		}
	}
}

// compare adds a trained token with ratio r to the Stats.
func (s *Stats) compare(t Tokens, i int, r float64) {
	whole := t.Current[i] - t.Sampled[i]
	s.Count++
	s.Ratio += r
	s.RatioMax = math.Max(s.RatioMax, r)
	s.KL += math.Exp(whole) - 1 - whole
	s.Gap += math.Abs(whole)
	s.GapMax = math.Max(s.GapMax, math.Abs(whole))
}

// weigh adds a token's importance weight to the Stats. staleness is the difference of its
// log-probabilities under the two versions, in nats.
func (s *Stats) weigh(w importance, staleness float64) {
	s.Importance += w.weight
	s.Squares += w.weight * w.weight
	s.Capped += count(w.capped)
	s.Rejected += count(w.rejected)
	s.Staleness += staleness
}

func count(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Aggregation names how token losses become one number.
type Aggregation string

// The aggregations.
const (
	// TokenMean weighs every trained token of the batch alike (DAPO).
	TokenMean Aggregation = "token_mean"
	// SequenceMean takes the mean over each trajectory's trained tokens first,
	// then over trajectories (the original GRPO).
	SequenceMean Aggregation = "sequence_mean"
	// Constant divides each trajectory's sum by one constant, then takes the mean over
	// trajectories (Dr. GRPO, arXiv:2503.20783). Dividing by the trajectory's own length
	// would make long failures cheap.
	Constant Aggregation = "constant"
)

// Denominators has the counts that losses are divided by. They cover the whole batch,
// before any mask or rejection. A trajectory without a trained token does not count.
type Denominators struct {
	// Trajectory is the number of trained tokens of each trajectory.
	Trajectory []int
	// Length is the constant that the aggregation Constant divides by.
	Length int
}

// Weight returns the weight of one trained token of trajectory i.
func (d Denominators) Weight(a Aggregation, i int) float64 {
	switch a {
	case SequenceMean:
		return 1 / (float64(d.Trajectory[i]) * float64(d.nonEmpty()))
	case Constant:
		return 1 / (float64(d.Length) * float64(d.nonEmpty()))
	}
	return 1 / float64(d.Tokens())
}

// Tokens returns the number of trained tokens of the batch.
func (d Denominators) Tokens() int {
	n := 0
	for _, t := range d.Trajectory {
		n += t
	}
	return n
}

func (d Denominators) nonEmpty() int {
	n := 0
	for _, t := range d.Trajectory {
		if t > 0 {
			n++
		}
	}
	return n
}
