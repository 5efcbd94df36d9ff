package model

import (
	"fmt"
	"slices"
)

// Precision is how the matrices of a frozen base are rounded, once, and held in memory.
// Engines compute exactly with the float32 value of each rounded number; vectors (norms,
// biases) stay in float32.
type Precision string

// The precisions, with the bytes that a number takes in files and in memory.
const (
	F32  Precision = "f32"  // 4; nothing is rounded
	BF16 Precision = "bf16" // 2; to the nearest bfloat16
	// Q8_0 is llama.cpp's format: integers of eight bits, with one factor in F16 for each
	// 32 numbers of a row. It takes 1.06 bytes in files and 1.13 in memory. A base that
	// was read from a GGUF file in Q8_0 loses nothing.
	Q8_0 Precision = "q8_0"
)

// Precisions returns all precisions.
func Precisions() []Precision { return []Precision{F32, BF16, Q8_0} }

// quantBlock is how many numbers of a row share a factor of Q8_0.
const quantBlock = 32

// Check returns the reason why a model of architecture a can't be held in precision p.
func (p Precision) Check(a Architecture) error {
	if !slices.Contains(Precisions(), p) {
		return fmt.Errorf("%w: precision of the base is %q, want f32, bf16 or q8_0", ErrAdapter, p)
	}
	if p != Q8_0 {
		return nil
	}
	for _, n := range []struct {
		name string
		size int
		of   int
	}{
		{"hidden_size", a.HiddenSize, quantBlock},
		{"intermediate_size", a.FeedForward, quantBlock},
		{"the width of all heads", a.Heads * a.HeadDim, quantBlock},
		{"head_dim", a.HeadDim, quantBlock / 2},
	} {
		if n.size%n.of != 0 {
			return fmt.Errorf("%w: a base in q8_0 wants %s to be a multiple of %d, it is %d: take bf16", ErrAdapter, n.name, n.of, n.size)
		}
	}
	return nil
}

// Bytes returns how many bytes n numbers of matrices take in a file and in memory, where
// factors are float32.
func (p Precision) Bytes(n int64) (stored, held int64) {
	switch p {
	case BF16:
		return 2 * n, 2 * n
	case Q8_0:
		return n + 2*n/quantBlock, n + 4*n/quantBlock
	}
	return 4 * n, 4 * n
}
