package model

import (
	"cmp"
	"slices"
)

// Nucleus returns the most likely ones of tokens: the smallest number of them whose
// probabilities sum to at least p, and at least one (Holtzman et al., 2020,
// arXiv:1904.09751). chances[i] is the probability of tokens[i]. Among equally likely
// tokens the one with the lower number is taken first. tokens and the result ascend; the
// result uses the memory of tokens.
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
