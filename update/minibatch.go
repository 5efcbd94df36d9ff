package update

import (
	"slices"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/shuffle"
)

// minibatch is the part of a batch that one update learns from.
type minibatch struct {
	rows []int // indices of rows of the batch, ascending
	// denominators count only the minibatch's trajectories.
	denominators credit.Denominators
}

// minibatchDomain makes the order of groups independent of everything else that the seed
// decides.
const minibatchDomain = 0x6d696e69 // "mini"

// minibatches returns the updates of a step: t.Passes passes over the batch, each in
// t.Minibatches parts. A part holds whole groups, because the advantages of a group are
// relative to each other. Seed, step and pass decide which groups a part holds, so it
// changes with each pass. A part without a trained token is left out.
func minibatches(b model.Batch, t spec.Training, seed uint64, step int) []minibatch {
	groups := map[int]int{} // ordinal of each group that occurs
	for _, x := range b.Trajectories {
		if _, ok := groups[x.Group]; !ok {
			groups[x.Group] = len(groups)
		}
	}
	n, parts := len(groups), max(1, min(t.Minibatches, len(groups)))
	var out []minibatch
	for pass := range max(1, t.Passes) {
		key := shuffle.Key(minibatchDomain, seed, uint64(step), uint64(pass))
		part := make([]int, n) // of each group
		for i := range n {
			part[i] = shuffle.Index(key, n, i) * parts / n
		}
		for p := range parts {
			m := pick(b, func(trajectory int) bool { return part[groups[b.Trajectories[trajectory].Group]] == p })
			if m.denominators.Tokens() > 0 {
				out = append(out, m)
			}
		}
	}
	return out
}

func pick(b model.Batch, in func(trajectory int) bool) minibatch {
	m := minibatch{denominators: credit.Denominators{Trajectory: make([]int, len(b.Trajectories))}}
	for i, t := range b.Trajectories {
		if in(i) {
			m.denominators.Trajectory[i] = t.Trained
		}
	}
	for i, r := range b.Rows {
		if in(r.Trajectory) {
			m.rows = append(m.rows, i)
		}
	}
	m.rows = slices.Clip(m.rows)
	return m
}
