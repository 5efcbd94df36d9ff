package credit

import (
	"fmt"
	"math"
	"slices"
)

// Advantages has the advantages that a Plan assigns to a batch. Skipped and masked calls
// are not trained: they have advantage 0, and zeros for their tokens, also in Returns.
type Advantages struct {
	// Trajectory is the number that is reported for each trajectory, by group and sample:
	// the normalized sum of the reward and of all that the trained calls earned, before
	// Assignment spreads it. It is 0 if all calls are skipped.
	Trajectory [][]float64
	// Call is by group, sample and call. If the tokens of a call have different
	// advantages, it is their mean.
	Call [][][]float64
	// Token is by group, sample, call and trained token. It is nil if every token has the
	// advantage of its call.
	Token [][][][]float64
	// Baselines are Plan.Baselines after the batch; nil unless the plan has running ones.
	Baselines map[string]float64
	// Returns are the targets of a critic, with the shape of Token. They are nil without
	// a critic.
	Returns [][][][]float64
}

// Teaches reports whether any trained token of a group has an advantage other than 0.
func (a Advantages) Teaches(groups [][]Trajectory, group int) bool {
	for i, t := range groups[group] {
		for k, c := range t.Calls {
			switch {
			case !c.Trains() || c.Tokens == 0:
			case a.Token == nil && a.Call[group][i][k] != 0:
				return true
			case a.Token != nil && slices.ContainsFunc(a.Token[group][i][k], func(x float64) bool { return x != 0 }):
				return true
			}
		}
	}
	return false
}

// empty returns Advantages of zeros with the shape of the groups.
func (p Plan) empty(groups [][]Trajectory) Advantages {
	out := Advantages{Trajectory: make([][]float64, len(groups)), Call: make([][][]float64, len(groups))}
	for g, samples := range groups {
		out.Trajectory[g], out.Call[g] = make([]float64, len(samples)), make([][]float64, len(samples))
		for i, t := range samples {
			out.Call[g][i] = make([]float64, len(t.Calls))
		}
	}
	if p.Tokens == GAE {
		out.Token = byToken(groups)
	}
	if p.critic() {
		out.Returns = byToken(groups)
	}
	return out
}

// byToken returns zeros by group, sample, call and token. The tokens of a trajectory lie
// in one piece of memory.
func byToken(groups [][]Trajectory) [][][][]float64 {
	out := make([][][][]float64, len(groups))
	for g, samples := range groups {
		out[g] = make([][][]float64, len(samples))
		for i, t := range samples {
			tokens := 0
			for _, c := range t.Calls {
				tokens += c.Tokens
			}
			rest := make([]float64, tokens)
			out[g][i] = make([][]float64, len(t.Calls))
			for k, c := range t.Calls {
				out[g][i][k], rest = rest[:c.Tokens:c.Tokens], rest[c.Tokens:]
			}
		}
	}
	return out
}

// mask takes away the credit of masked calls.
func (a Advantages) mask(groups [][]Trajectory) {
	for g, samples := range groups {
		for i, t := range samples {
			for k, c := range t.Calls {
				if !c.Masked {
					continue
				}
				a.Call[g][i][k] = 0
				if a.Token != nil {
					clear(a.Token[g][i][k])
				}
				if a.Returns != nil {
					clear(a.Returns[g][i][k])
				}
			}
		}
	}
}

// check returns an error for numbers that overflowed although the rewards were finite.
func (a Advantages) check(groups [][]Trajectory) error {
	for g, samples := range groups {
		for i, t := range samples {
			numbers := [][]float64{{a.Trajectory[g][i]}, a.Call[g][i]}
			if a.Token != nil {
				numbers = append(numbers, a.Token[g][i]...)
			}
			if a.Returns != nil {
				numbers = append(numbers, a.Returns[g][i]...)
			}
			for _, x := range numbers {
				if infinite(x) >= 0 {
					return fmt.Errorf("%w: the advantage of %s is not finite; its rewards or those it is compared with are too large", ErrReward, t.Name)
				}
			}
		}
	}
	return nil
}

// whitenEpsilon is added to the variance and keeps the quotient finite. The value is that
// of verl.
const whitenEpsilon = 1e-8

// whiten brings the advantages of all trained tokens of a batch to mean 0 and
// deviation 1 (REINFORCE++, arXiv:2501.03262; PPO; GDPO):
//
//	A' = (A − mean)/√(var + 1e-8)
//
// The variance is the unbiased one, and epsilon stands under the root, as in verl;
// tokens that are not trained neither count nor change. Every token weighs alike, so
// a long call weighs more than a short one. Where all tokens have one advantage they
// get 0 exactly, also a lone token, which verl refuses.
func (a Advantages) whiten(b batch) {
	var w whitening
	a.visit(b, w.count)
	w.mean = w.sum / w.weight
	a.visit(b, w.measure)
	a.visit(b, w.apply)
	if a.Token == nil {
		return
	}
	for _, t := range b.paths {
		for _, k := range t.trained {
			a.Call[t.group][t.sample][k] = mean(a.Token[t.group][t.sample][k])
		}
	}
}

// visit calls see for every trained call. If tokens have their own advantages, it passes
// those with weight 1; otherwise it passes the call's one advantage, with the number of
// its tokens as the weight.
func (a Advantages) visit(b batch, see func(x []float64, weight float64)) {
	for _, t := range b.paths {
		for _, k := range t.trained {
			if t.calls[k].Masked {
				continue
			}
			if a.Token == nil {
				see(a.Call[t.group][t.sample][k:k+1], float64(t.calls[k].Tokens))
			} else {
				see(a.Token[t.group][t.sample][k], 1)
			}
		}
	}
}

// whitening holds the sums over the numbers so far.
type whitening struct {
	weight, sum, mean, squares float64
	first                      float64
	varies                     bool
}

func (w *whitening) count(x []float64, weight float64) {
	if weight == 0 || len(x) == 0 {
		return
	}
	if w.weight == 0 {
		w.first = x[0]
	}
	sum := 0.0
	for _, v := range x {
		w.varies = w.varies || v != w.first
		sum += v
	}
	w.weight += weight * float64(len(x))
	w.sum += weight * sum
}

func (w *whitening) measure(x []float64, weight float64) {
	sum := 0.0
	for _, v := range x {
		sum += (v - w.mean) * (v - w.mean)
	}
	w.squares += weight * sum
}

func (w *whitening) apply(x []float64, _ float64) {
	if !w.varies {
		clear(x)
		return
	}
	by := math.Sqrt(w.squares/(w.weight-1) + whitenEpsilon)
	for i, v := range x {
		x[i] = (v - w.mean) / by
	}
}

func mean(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}
