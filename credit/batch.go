package credit

import (
	"maps"
	"slices"
)

// path is a trajectory as its credit is assigned.
type path struct {
	group, sample int
	calls         []Call
	// trained are the indices of the calls that get credit. The others are passed over,
	// as observations are.
	trained []int
	// rewards are the named ones in order of their names, reward their weighted sum.
	rewards []float64
	reward  float64
}

// earned returns the sum of the trained calls' own rewards.
func (t path) earned() float64 {
	sum := 0.0
	for _, k := range t.trained {
		sum += t.calls[k].earned()
	}
	return sum
}

// batch holds the trajectories of all groups, in their order.
type batch struct {
	paths []path
	// counted are, by group, the paths that take part in baselines. An attempt without
	// any call takes part, because an attempt at the task can have such a result. An
	// attempt whose calls are all skipped does not.
	counted [][]int
}

func everyone(Call) bool { return true }

// newBatch makes a batch. The trained calls are those for which of returns true and that
// are not skipped.
func (p Plan) newBatch(groups [][]Trajectory, rewards [][][]float64, of func(Call) bool) batch {
	b := batch{counted: make([][]int, len(groups))}
	for g, samples := range groups {
		for i, t := range samples {
			one := path{group: g, sample: i, calls: t.Calls, rewards: rewards[g][i], reward: p.sum(rewards[g][i])}
			for k, c := range t.Calls {
				if !c.Skip && of(c) {
					one.trained = append(one.trained, k)
				}
			}
			if len(t.Calls) == 0 || len(one.trained) > 0 {
				b.counted[g] = append(b.counted[g], len(b.paths))
			}
			b.paths = append(b.paths, one)
		}
	}
	return b
}

// agents returns the agents that have a trained call, sorted.
func (b batch) agents() []string {
	seen := map[string]bool{}
	for _, t := range b.paths {
		for _, k := range t.trained {
			seen[t.calls[k].Agent] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// earns reports whether any trained call has a reward of its own.
func (b batch) earns() bool {
	return slices.ContainsFunc(b.paths, func(t path) bool {
		return slices.ContainsFunc(t.trained, func(k int) bool { return t.calls[k].earned() != 0 })
	})
}

// each returns a number of every path.
func (b batch) each(number func(path) float64) []float64 {
	out := make([]float64, len(b.paths))
	for i, t := range b.paths {
		out[i] = number(t)
	}
	return out
}

// grouped returns the numbers of the paths that count, by group.
func (b batch) grouped(numbers []float64) [][]float64 {
	out := make([][]float64, len(b.counted))
	for g, counted := range b.counted {
		for _, i := range counted {
			out[g] = append(out[g], numbers[i])
		}
	}
	return out
}

// compare normalizes a number of every path. Paths that do not count get 0.
func (b batch) compare(n Normalization, numbers []float64, beside deviations) []float64 {
	out := make([]float64, len(b.paths))
	for g, advantages := range n.advantages(b.grouped(numbers), beside) {
		for j, i := range b.counted[g] {
			out[i] = advantages[j]
		}
	}
	return out
}
