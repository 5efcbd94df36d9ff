package model

import (
	"cmp"
	"slices"
)

// Nucleus keeps of tokens, which ascend, the most likely ones that together have
// at least the probability p (Holtzman et al., 2020, arXiv:1904.09751): as few as
// that takes, at least one. chances[i] is the probability of tokens[i]; of equally
// likely tokens the lower number comes first. It returns them ascending, in the
// memory of tokens.
func Nucleus(tokens []int32, chances []float32, p float64) []int32 {
	order := make([]int, len(tokens))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		return cmp.Or(cmp.Compare(chances[j], chances[i]), cmp.Compare(i, j))
	})
	sum, n := 0.0, 0
	for n < len(order) && (n == 0 || sum < p) {
		sum += float64(chances[order[n]])
		n++
	}
	order = order[:n]
	slices.Sort(order)
	for i, from := range order { // from is never below i
		tokens[i] = tokens[from]
	}
	return tokens[:n]
}
