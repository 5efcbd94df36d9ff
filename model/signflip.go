package model

import (
	"math"
	"slices"
)

// signFlipSums limits how many different sums the sign-flip test tells apart. Rewards of
// 0 and 1 stay far below it, whatever the number of tasks. For other rewards the test is
// exact up to 16 tasks whose rewards differ.
const signFlipSums = 1 << 16

// signFlip returns the one-sided p-value of Fisher's randomization test for paired
// differences: the probability that their sum is at least as large as the observed one,
// if each difference has either sign with equal probability (R. A. Fisher, The Design of
// Experiments, 1935, §21). The test assumes nothing about the distribution of rewards. It
// is exact unless signFlipSums limits it; for rewards of 0 and 1 it is the sign test.
// Differences of 0 have no effect. One task alone proves nothing: its p-value is 1.
//
// A sum is at least as large as the observed one exactly if the differences with a minus
// sign add up to no more than they do in the observation. So the code counts the sums of
// subsets, difference by difference, up to that limit.
func signFlip(differences []float64) float64 {
	var sizes []float64
	limit, total := 0.0, 0.0
	for _, d := range differences {
		if d == 0 {
			continue
		}
		sizes = append(sizes, math.Abs(d))
		total += math.Abs(d)
		if d < 0 {
			limit -= d
		}
	}
	if len(differences) < 2 || len(sizes) == 0 {
		return 1
	}
	slices.Sort(sizes) // so that the order of tasks can't matter, not even in the last bit
	near := 1e-9 * total
	sums, grid := []subsetSum{{0, 1}}, near
	for _, size := range sizes {
		sums = flip(sums, size, limit+near, near)
		for len(sums) > signFlipSums {
			if sums = merge(sums, grid); len(sums) > signFlipSums {
				grid *= 2
			}
		}
	}
	p := 0.0
	for _, s := range sums {
		p += s.probability
	}
	return min(1, p)
}

// subsetSum holds the probability that the differences with a minus sign add up to sum.
type subsetSum struct{ sum, probability float64 }

// flip adds one more difference, with either sign. It drops sums beyond limit, and merges
// sums that are closer than near.
func flip(sums []subsetSum, size, limit, near float64) []subsetSum {
	out := make([]subsetSum, 0, 2*len(sums))
	add := func(sum, probability float64) {
		switch last := len(out) - 1; {
		case sum > limit:
		case last >= 0 && sum-out[last].sum <= near:
			out[last].probability += probability / 2
		default:
			out = append(out, subsetSum{sum, probability / 2})
		}
	}
	plus := 0 // index of the next sum to which the size is added
	for _, s := range sums {
		for ; sums[plus].sum+size < s.sum; plus++ {
			add(sums[plus].sum+size, sums[plus].probability)
		}
		add(s.sum, s.probability)
	}
	for _, s := range sums[plus:] {
		add(s.sum+size, s.probability)
	}
	return out
}

// merge replaces sums within grid of each other by their weighted mean, so that errors
// cancel.
func merge(sums []subsetSum, grid float64) []subsetSum {
	out, first := sums[:1], sums[0].sum
	for _, s := range sums[1:] {
		last := &out[len(out)-1]
		if s.sum-first > grid {
			out, first = append(out, s), s.sum
			continue
		}
		probability := last.probability + s.probability
		last.sum += (s.sum - last.sum) * s.probability / probability
		last.probability = probability
	}
	return out
}
