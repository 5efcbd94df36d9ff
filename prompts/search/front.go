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

// fronts returns, for each validation task, the numbers of the candidates with the highest
// score on it, in ascending order.
func (a archive) fronts() [][]int {
	fronts := make([][]int, len(a[0].Scores))
	for task := range fronts {
		highest := *a[0].Scores[task]
		for number, e := range a {
			switch score := *e.Scores[task]; {
			case score > highest:
				highest, fronts[task] = score, []int{number}
			case score == highest:
				fronts[task] = append(fronts[task], number)
			}
		}
	}
	return fronts
}

// undominated returns the fronts without dominated candidates. A candidate is dominated if
// each front that it is on has another candidate that is not dominated. Those with lower
// means are looked at first; of equal means, those that occur in earlier fronts.
//
// One pass is enough: a candidate that was kept once is the last one of some front, and
// stays it when others go.
func (a archive) undominated() [][]int {
	fronts := a.fronts()
	var order []int
	of := make([][]int, len(a)) // the fronts that a candidate is on
	for task, front := range fronts {
		for _, number := range front {
			if of[number] == nil {
				order = append(order, number)
			}
			of[number] = append(of[number], task)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(a[i].Mean, a[j].Mean) })
	left := make([]int, len(fronts)) // how many are not dominated
	for task, front := range fronts {
		left[task] = len(front)
	}
	dominated := make([]bool, len(a))
	for _, number := range order {
		if slices.ContainsFunc(of[number], func(task int) bool { return left[task] == 1 }) {
			continue
		}
		dominated[number] = true
		for _, task := range of[number] {
			left[task]--
		}
	}
	for task, front := range fronts {
		fronts[task] = slices.DeleteFunc(front, func(number int) bool { return dominated[number] })
	}
	return fronts
}

// tickets returns the number of each candidate that is not dominated as often as it is on
// a front, in ascending order.
func (a archive) tickets() []int {
	return slices.Sorted(slices.Values(slices.Concat(a.undominated()...)))
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
