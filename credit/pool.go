package credit

import "math"

// pool is a set of calls of one group that are compared with each other.
type pool struct {
	numbers []float64
	// at has, for each call, the place where its credit is added.
	at []*float64
}

func (p *pool) add(number float64, at *float64) {
	p.numbers, p.at = append(p.numbers, number), append(p.at, at)
}

// local returns the normalization inside a pool: it subtracts the pool's own mean, and
// divides if n divides.
func (n Normalization) local() Normalization {
	out := Normalization{Mean: Group, Std: n.Std, LeaveOneOut: n.LeaveOneOut}
	if n.Std == Batch {
		out.Std = Group
	}
	return out
}

// credit adds to every call its advantage in its pool, times a weight.
func (n Normalization) credit(pools []pool, weight float64) {
	numbers := make([][]float64, len(pools))
	for i, p := range pools {
		numbers[i] = p.numbers
	}
	for i, advantages := range n.local().advantages(numbers, deviations{}) {
		for j, a := range advantages {
			*pools[i].at[j] += weight * a
		}
	}
}

// anchored adds the step advantages of GiGPO (arXiv:2505.10978). Calls of a group that
// were made in the same state are compared by their discounted returns,
//
//	A_k = A^E + ω·A^S,  A^S = (G_k − mean_S)/F,  G_k = Σ_{j≥k} γ^(j−k)·r_j
//
// where r_j is call j's own reward, to which the last call adds the trajectory's, and F
// is 1 or the deviation of the compared calls. A state that occurs once adds nothing, nor
// does an empty one. A^E is the advantage by Normalization, over trajectories. The
// authors' code by default takes its mean and deviation over calls, so that long attempts
// decide about the baseline; here an attempt is one sample of its task, however long it
// is. If one attempt returns to a state, all of its calls there are compared.
func (p Plan) anchored(b batch, out Advantages) {
	returns := b.ahead(p.Discount)
	var pools []pool
	for _, counted := range b.counted {
		of := map[string]int{} // the pool of a state
		for _, i := range counted {
			t := b.paths[i]
			for j, k := range t.trained {
				state := t.calls[k].State
				if state == "" {
					continue
				}
				at, ok := of[state]
				if !ok {
					at, pools = len(pools), append(pools, pool{})
					of[state] = at
				}
				final := math.Pow(p.Discount, float64(len(t.trained)-1-j)) * t.reward
				pools[at].add(returns[i][j]+final, &out.Call[t.group][t.sample][k])
			}
		}
	}
	p.Normalization.credit(pools, p.StepWeight)
}

// judged adds the judge's scores of the calls, normalized over the trained calls of their
// group:
//
//	A_k = A + (J_k − mean J)/F
//
// with F as for GiGPO. The normalized scores of a group add up to 0 (with or without
// LeaveOneOut), so the sum of A_k over a group is the same as for Identical; a trajectory
// with better scores gains at the cost of the others.
func (p Plan) judged(b batch, out Advantages) {
	pools := make([]pool, len(b.counted))
	for g, counted := range b.counted {
		for _, i := range counted {
			t := b.paths[i]
			for _, k := range t.trained {
				pools[g].add(t.calls[k].Judged, &out.Call[t.group][t.sample][k])
			}
		}
	}
	p.Normalization.credit(pools, 1)
}
