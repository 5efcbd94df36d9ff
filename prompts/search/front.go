package search

import (
	"cmp"
	"slices"
)

// entry is a candidate of the archive. Its number is its place there; the seed has 0.
type entry struct {
	Candidate Candidate `json:"candidate"`
	// Parents are numbers. The seed has none.
	Parents []int `json:"parents,omitempty"`
	// Scores are one for each task of the validation split that counts.
	Scores []*float64 `json:"scores"`
	Mean   float64    `json:"mean"`
	// NextPrompt is the prompt that the next proposal from this candidate changes.
	NextPrompt int `json:"next_prompt"`
}

// archive holds the candidates that were measured on the whole validation split.
type archive []entry

// best returns the number of the candidate with the highest mean, the earliest of several.
func (a archive) best() int {
	best := 0
	for i, e := range a {
		if e.Mean > a[best].Mean {
			best = i
		}
	}
	return best
}

// fronts are, for each validation task, the candidates with the highest score on it. They
// follow from the archive, so they are no part of a search's state, and take in what is new
// of it: a search of a thousand candidates would else look at all scores for each proposal.
// The zero value is ready.
type fronts struct {
	scores  [][]float64 // by number of the candidate
	highest []float64   // by task
}

// update takes in the candidates of the archive that are new.
func (f *fronts) update(a archive) {
	for _, e := range a[len(f.scores):] {
		scores := make([]float64, len(e.Scores))
		for task, score := range e.Scores {
			scores[task] = *score
		}
		if f.highest == nil {
			f.highest = slices.Clone(scores)
		}
		for task, score := range scores {
			f.highest[task] = max(f.highest[task], score)
		}
		f.scores = append(f.scores, scores)
	}
}

// tickets returns the number of each candidate that is not dominated as often as it is on
// a front, in ascending order. A candidate is dominated if each front that it is on has
// another candidate that is not dominated. Those with lower means are looked at first; of
// equal means, those that occur in earlier fronts.
//
// One pass is enough: a candidate that was kept once is the last one of some front, and
// stays it when others go.
func (f *fronts) tickets(a archive) []int {
	f.update(a)
	left := make([]int, len(f.highest)) // how many are not dominated, by task
	first := make([]int, len(a))        // the first front that a candidate is on
	var order []int
	for number, scores := range f.scores {
		first[number] = -1
		for task, score := range scores {
			if score != f.highest[task] {
				continue
			}
			left[task]++
			if first[number] < 0 {
				first[number] = task
				order = append(order, number)
			}
		}
	}
	slices.SortFunc(order, func(i, j int) int {
		return cmp.Or(cmp.Compare(a[i].Mean, a[j].Mean), cmp.Compare(first[i], first[j]), cmp.Compare(i, j))
	})
	var kept []int
	for _, number := range order {
		if f.dominated(number, left) {
			f.each(number, func(task int) { left[task]-- })
			continue
		}
		f.each(number, func(int) { kept = append(kept, number) })
	}
	slices.Sort(kept)
	return kept
}

// dominated reports whether all fronts that a candidate is on have another one left.
func (f *fronts) dominated(number int, left []int) bool {
	for task, score := range f.scores[number] {
		if score == f.highest[task] && left[task] == 1 {
			return false
		}
	}
	return true
}

// each calls visit with each task on whose front a candidate is.
func (f *fronts) each(number int, visit func(task int)) {
	for task, score := range f.scores[number] {
		if score == f.highest[task] {
			visit(task)
		}
	}
}

// ancestors returns the numbers of all candidates that a candidate descends from, in
// ascending order.
func (a archive) ancestors(number int) []int {
	var out []int
	for queue := []int{number}; len(queue) > 0; queue = queue[1:] {
		for _, parent := range a[queue[0]].Parents {
			if !slices.Contains(out, parent) {
				out, queue = append(out, parent), append(queue, parent)
			}
		}
	}
	slices.Sort(out)
	return out
}
