package tasks

import (
	"fmt"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/tasks/shuffle"
)

// Disjoint removes from each list the tasks that leak into a later list: tasks with the
// same input as a task there, and tasks that are composed of a single question that a
// task there is composed of, too. The last list keeps all its tasks. left has the number
// of tasks that were removed from each list.
func Disjoint(lists [][]Task) (kept [][]Task, left []int) {
	kept, left = make([][]Task, len(lists)), make([]int, len(lists))
	known := map[string]bool{}
	for i := len(lists) - 1; i >= 0; i-- {
		for _, t := range lists[i] {
			leaks := false
			for _, key := range t.questions() {
				leaks = leaks || known[key]
			}
			if leaks {
				left[i]++
				continue
			}
			kept[i] = append(kept[i], t)
		}
		for _, t := range kept[i] {
			for _, key := range t.questions() {
				known[key] = true
			}
		}
	}
	return kept, left
}

// Split divides a list into as many parts as there are shares, in an order that the seed
// decides. No part leaks into another: tasks with the same question stay together, and so
// do tasks that are connected by single questions, also through other tasks. The sizes of
// the parts follow the shares as closely as such groups allow. It is an error if a part
// would be empty.
func Split(list []Task, shares []int, seed uint64) ([][]Task, error) {
	total := 0
	for _, share := range shares {
		if share < 1 {
			return nil, fmt.Errorf("a share of %d: give numbers of at least 1", share)
		}
		total += share
	}
	groups := together(list)
	parts, done := make([][]Task, len(shares)), 0
	for i := range groups {
		group := groups[shuffle.Index(seed, len(groups), i)]
		// The group goes to the part that lacks most of its share.
		most, lack := 0, 0.0
		for p, share := range shares {
			want := float64(share) / float64(total) * float64(done+len(group))
			if missing := want - float64(len(parts[p])); p == 0 || missing > lack {
				most, lack = p, missing
			}
		}
		parts[most] = append(parts[most], group...)
		done += len(group)
	}
	for p, part := range parts {
		if len(part) == 0 {
			return nil, fmt.Errorf("part %d of %d would be empty: from %s come only %s that share no question", p+1, len(parts), readable.Count(len(list), "task"), readable.Count(len(groups), "group"))
		}
	}
	return parts, nil
}

// together returns the groups of tasks that share questions, in the order of their first
// tasks.
func together(list []Task) [][]Task {
	parent := make([]int, len(list))
	root := func(i int) int {
		for parent[i] != i {
			parent[i] = parent[parent[i]]
			i = parent[i]
		}
		return i
	}
	first := map[string]int{}
	for i, t := range list {
		parent[i] = i
		for _, key := range t.questions() {
			if other, known := first[key]; known {
				a, b := root(other), root(i)
				parent[max(a, b)] = min(a, b)
				continue
			}
			first[key] = i
		}
	}
	position := map[int]int{}
	var groups [][]Task
	for i, t := range list {
		r := root(i)
		at, known := position[r]
		if !known {
			at = len(groups)
			position[r] = at
			groups = append(groups, nil)
		}
		groups[at] = append(groups[at], t)
	}
	return groups
}
