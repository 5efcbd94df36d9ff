package search

import (
	"math/bits"
	"slices"

	"github.com/fulgurite/fulgurite/tasks/shuffle"
)

// Draws is a source of chance. A search numbers its draws from 0 and makes each once, so a
// draw may depend on its number and on nothing else.
type Draws interface {
	// Below returns a number from 0 to n-1, all of them equally likely.
	Below(number uint64, n int) int
	// Fraction returns a number from 0 to 1, without 1.
	Fraction(number uint64) float64
}

// Seed is the source of chance that a seed determines. Its values never change, because
// running workflows replay them.
type Seed uint64

// Below is part of Draws. A number is more likely than another by less than n/2⁶⁴.
func (s Seed) Below(number uint64, n int) int {
	high, _ := bits.Mul64(shuffle.Key(uint64(s), number), uint64(n))
	return int(high)
}

// Fraction is part of Draws.
func (s Seed) Fraction(number uint64) float64 {
	return float64(shuffle.Key(uint64(s), number)>>11) / (1 << 53)
}

// chance makes draws and counts them. Its methods make the draws that Python's random
// makes, in the same order, so that a test can replay those of the reference programs.
type chance struct {
	Seed  Seed   `json:"seed"`
	Drawn uint64 `json:"drawn"`
	// draws replaces the seed if it is not nil.
	draws Draws
}

func (c *chance) source() Draws {
	if c.draws != nil {
		return c.draws
	}
	return c.Seed
}

func (c *chance) below(n int) int {
	c.Drawn++
	return c.source().Below(c.Drawn-1, n)
}

func (c *chance) fraction() float64 {
	c.Drawn++
	return c.source().Fraction(c.Drawn - 1)
}

// permutation returns the numbers below n in random order (Fisher and Yates, from the end).
func (c *chance) permutation(n int) []int {
	order := numbers(n)
	for i := n - 1; i > 0; i-- {
		j := c.below(i + 1)
		order[i], order[j] = order[j], order[i]
	}
	return order
}

// sample returns k of the elements in random order.
func (c *chance) sample(from []int, k int) []int {
	pool, out := slices.Clone(from), make([]int, 0, k)
	for left := len(pool); len(out) < k; left-- {
		j := c.below(left)
		out = append(out, pool[j])
		pool[j] = pool[left-1]
	}
	return out
}

// weighted returns an element with a probability in proportion to its weight. Weights
// below 0 count as 0. If all are 0, every element is equally likely.
func (c *chance) weighted(from []int, weights []float64) int {
	total := 0.0
	upTo := make([]float64, len(from))
	for i, w := range weights {
		total += max(0, w)
		upTo[i] = total
	}
	if total == 0 {
		return from[c.below(len(from))]
	}
	x := c.fraction() * total
	for i := range from {
		if x < upTo[i] {
			return from[i]
		}
	}
	return from[len(from)-1] // rounding made x the total
}

// numbers returns the numbers below n.
func numbers(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
