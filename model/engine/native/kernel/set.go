package kernel

import (
	"errors"
	"fmt"
	"strings"
)

//go:generate go run ./generate

// fused is the arithmetic of the assembly: products are added without rounding,
// rows are summed in sixteen lanes that are folded 8, 4, 2 and 1 apart.
const fused = "fused16"

// Lanes is the number of float32 in a vector; lengths are multiples of it.
const Lanes = 16

// ErrUnknown is wrapped by Named for a set that this processor or build lacks.
var ErrUnknown = errors.New("unknown kernel set")

// tile multiplies a fixed number of rows by a fixed number of columns; strides
// are in bytes, add is 0 or 1.
type tile func(c *float32, cRow int, a *float32, aRow, aStep int, b *float32, bRow, k, add int)

// Tiles whose B has narrow numbers: bfloat16, or eight bits with factors, where k counts
// blocks of QuantBlock.
type (
	tileBF16 func(c *float32, cRow int, a *float32, aRow, aStep int, b *uint16, bRow, k, add int)
	tileQ8   func(c *float32, cRow int, a *float32, aRow, aStep int, b *int8, bRow, k, add int, factors *float32)
)

// tileRows are the heights of the tiles in wide and narrow.
var tileRows = [4]int{8, 4, 2, 1}

// Set is one implementation of the kernels. Its methods may be called at once
// from several goroutines on different memory.
type Set struct {
	name       string
	arithmetic string

	wide   [4]tile // 32 columns; nil if the set has no such tile
	narrow [4]tile // 16 columns
	// Tiles of the same sizes for other forms of B.
	wideBF16, narrowBF16 [4]tileBF16
	wideQ8, narrowQ8     [4]tileQ8

	widenBF16       func(to *float32, from *uint16, n int)
	widenQ8         func(to *float32, from *int8, factors *float32, n int)
	transpose       func(to *float32, toRow int, from *float32, fromRow, blocks int) // nil if the set has none
	softmax         func(x *float32, n int, scale float32)
	logSumExp       func(x *float32, n int, scale float32) (most, sum, weighted float32)
	logitsGradient  func(x *float32, n int, scale, most, logSum, entropy, a, b float32)
	softmaxBackward func(p, dp *float32, n int, scale float32)
	norm            func(h, x, w, inverse *float32, rows, n int, part, epsilon float32)
	normBackward    func(dh, x, w, inverse, dx, dw *float32, rows, n int, part float32)
	swiGLU          func(gu, act *float32, rows, n int)
	swiGLUBackward  func(gu, dact *float32, rows, n int)
	rotate          func(x, cos, sin *float32, half, heads int, direction float32)
	add             func(sum, x *float32, n int)
	sumSquares      func(sums *float64, x *float32, n int)
	adamW           func(p, gradient, m, v *float32, n int,
		rate, scale, decay, epsilon, beta1, rest1, correct1, beta2, rest2, correct2 float32)
}

// Sets returns the sets that run on this processor, the fastest first. The last is always
// "go".
func Sets() []*Set { return append(vectorSets(), plainSet()) }

// Best returns the fastest set that runs on this processor.
func Best() *Set { return Sets()[0] }

// Named returns the set of that name. Its error wraps ErrUnknown if this processor or
// build lacks the set.
func Named(name string) (*Set, error) {
	var names []string
	for _, s := range Sets() {
		if s.name == name {
			return s, nil
		}
		names = append(names, s.name)
	}
	return nil, fmt.Errorf("%w %q: this processor and build have %s", ErrUnknown, name, strings.Join(names, ", "))
}

// Name returns "avx512", "avx2", "neon" or "go".
func (s *Set) Name() string { return s.name }

// Arithmetic names the rounding and the order of sums: sets with equal
// arithmetic give equal bits.
func (s *Set) Arithmetic() string { return s.arithmetic }

// Pad returns the smallest multiple of Lanes that is at least n.
func Pad(n int) int { return (n + Lanes - 1) / Lanes * Lanes }
