// Package kernel holds the arithmetic of the CPU engine: the matrix product and
// the element-wise steps of a transformer, forward and backward, over float32.
//
// A [Set] is one implementation of all of them. "avx512" and "avx2" on amd64 and "neon"
// on arm64 are assembly. The generator in ./generate prints all three from one
// description, so they do the same operations in the same order and give the same bits.
// "go" is portable. It gives other bits, because it rounds each product before it adds.
// Two sets have the same [Set.Arithmetic] exactly if they give the same bits, except for
// the bits of a NaN.
//
// Guarantees: each element of a matrix product is one chain of
// additions with ascending k that starts from 0 or from the element's old value.
// Neither the number of rows or columns, nor how they are cut into tiles, nor
// where an element lies changes it. Sums along a row depend on that row alone.
//
// Lengths are multiples of [Lanes]; callers pad with zeros, which add nothing to a chain.
// Slices that are too short panic before any assembly runs. Nothing in this package
// allocates, starts goroutines or depends on a model.
package kernel
