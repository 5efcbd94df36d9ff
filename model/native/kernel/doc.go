// Package kernel holds the arithmetic of the CPU engine: the matrix product and
// the element-wise steps of a transformer, forward and backward, over float32.
//
// A [Set] is one implementation of all of them. "avx512" and "avx2" on amd64 and
// "neon" on arm64 are assembly, printed by the generator in ./generate from one
// description, so that they do the same operations in the same order and give the
// same bits; "go" is portable and, because it rounds each product before it adds,
// gives others. [Set.Arithmetic] is equal exactly where bits are, but for the bits
// of a NaN.
//
// Guarantees: each element of a matrix product is one chain of
// additions with ascending k that starts from 0 or from the element's old value.
// Neither the number of rows or columns, nor how they are cut into tiles, nor
// where an element lies changes it. Sums along a row depend on that row alone.
//
// Lengths are multiples of [Lanes]; callers pad with zeros, which add nothing to
// a chain. Slices that are too short panic before any assembly runs. Nothing
// here allocates, starts goroutines or knows what a model is.
package kernel
