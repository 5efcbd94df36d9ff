package credit

import "math"

// assign computes the advantages of the trained calls of a batch.
func (p Plan) assign(b batch, out Advantages) {
	switch {
	case p.Tokens == GAE:
		p.byToken(b, out)
	case p.kind() == TurnGAE:
		p.byTurn(b, out)
	case p.kind() == ValueDifference:
		byDifference(b, out)
	case p.kind() == Discounted && b.earns():
		p.byReturn(b, out)
	case p.kind() == GiGPO:
		p.spread(b, Identical, p.outcomes(b), out)
		p.anchored(b, out)
	case p.kind() == Judge:
		p.spread(b, Identical, p.outcomes(b), out)
		p.judged(b, out)
	default:
		p.spread(b, p.kind(), p.outcomes(b), out)
	}
}

// spread distributes each trajectory's advantage over its calls, as the assignment says.
func (p Plan) spread(b batch, a Assignment, advantages []float64, out Advantages) {
	for i, t := range b.paths {
		for j, k := range t.trained {
			out.Call[t.group][t.sample][k] = a.share(advantages[i], j, len(t.trained), p.Discount)
		}
	}
}

// byReturn is Discounted for calls that have their own rewards. With e_k for call k's own
// reward, E_k = Σ_{j≥k} γ^{j−k}·e_j and n calls,
//
//	A_k = γ^(n−1−k)·(R − mean R)/s + (E_k − mean E_k)/s
//
// The mean of E_k is over the k-th calls of the trajectories that have one, because the
// remaining return depends on how far a trajectory has come. With one mean for all calls,
// late calls would look bad wherever every call has a reward. s is the deviation of R
// plus the deviation of E, which is no less than the deviation of their sum. The
// deviation of the sum itself is not suitable: if the parts cancel, it is close to 0, and
// quotients by it have no bound.
func (p Plan) byReturn(b batch, out Advantages) {
	n := p.Normalization
	ahead := b.ahead(p.Discount)
	beside := b.deviations(n.Std, ahead)
	p.spread(b, Discounted, p.finals(b, beside), out)
	centred := b.byPosition(Normalization{Mean: n.Mean, LeaveOneOut: n.LeaveOneOut}, ahead)
	divisors := p.divisors(b, beside, ahead)
	for i, t := range b.paths {
		for j, k := range t.trained {
			out.Call[t.group][t.sample][k] += scaled(centred[i][j], divisors[t.group])
		}
	}
}

// ahead returns, by path and trained call, the discounted sum of what this call and those
// after it earned.
func (b batch) ahead(discount float64) [][]float64 {
	out := make([][]float64, len(b.paths))
	for i, t := range b.paths {
		out[i] = make([]float64, len(t.trained))
		next := 0.0
		for j := len(t.trained) - 1; j >= 0; j-- {
			next = t.calls[t.trained[j]].earned() + discount*next
			out[i][j] = next
		}
	}
	return out
}

// byPosition normalizes, for each j, the j-th numbers of all paths that have one.
func (b batch) byPosition(n Normalization, numbers [][]float64) [][]float64 {
	out, most := make([][]float64, len(numbers)), 0
	for i, x := range numbers {
		out[i], most = make([]float64, len(x)), max(most, len(x))
	}
	for j := range most {
		groups, at := make([][]float64, len(b.counted)), make([][]int, len(b.counted))
		for g, counted := range b.counted {
			for _, i := range counted {
				if j < len(numbers[i]) {
					groups[g], at[g] = append(groups[g], numbers[i][j]), append(at[g], i)
				}
			}
		}
		for g, advantages := range n.advantages(groups, deviations{}) {
			for at, i := range at[g] {
				out[i][j] = advantages[at]
			}
		}
	}
	return out
}

// deviations returns the deviations of numbers from the mean of their position, over
// trajectories: each has equal weight, however many calls it has.
func (b batch) deviations(level Level, numbers [][]float64) deviations {
	if level != Group && level != Batch {
		return deviations{}
	}
	centred := b.byPosition(Normalization{Mean: level}, numbers)
	sums, counts := make([]float64, len(b.counted)), make([]int, len(b.counted))
	sum, count := 0.0, 0
	for i, t := range b.paths {
		if len(centred[i]) == 0 {
			continue
		}
		squares := 0.0
		for _, c := range centred[i] {
			squares += c * c
		}
		squares /= float64(len(centred[i]))
		sums[t.group], counts[t.group] = sums[t.group]+squares, counts[t.group]+1
		sum, count = sum+squares, count+1
	}
	out := deviations{group: make([]float64, len(b.counted)), batch: unbiased(sum, count)}
	for g := range sums {
		out.group[g] = unbiased(sums[g], counts[g])
	}
	return out
}

func unbiased(squares float64, count int) float64 {
	if count < 2 {
		return 0
	}
	return math.Sqrt(squares / float64(count-1))
}

// divisors returns, by group, the numbers that divide differences of remaining rewards:
// the divisors of the rewards or, if rewards are separate, those of the remaining
// rewards. A mean that is close to 0 in comparison with those rewards divides none of
// them.
func (p Plan) divisors(b batch, beside deviations, ahead [][]float64) []float64 {
	numbers := b.each(func(t path) float64 { return t.reward })
	if p.Separate {
		numbers = b.each(path.earned)
	}
	groups := b.grouped(numbers)
	var all []float64
	for _, x := range groups {
		all = append(all, x...)
	}
	batch := newMoments(all, beside.batch)
	out := make([]float64, len(groups))
	for g, x := range groups {
		group := newMoments(x, beside.of(g))
		for _, i := range b.counted[g] {
			for _, e := range ahead[i] {
				group.largest = math.Max(group.largest, math.Abs(e))
			}
		}
		if p.Separate {
			group.std, batch.std = beside.of(g), beside.batch
		}
		out[g] = p.Normalization.divisor(group, batch)
	}
	return out
}
