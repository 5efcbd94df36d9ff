// Package gguf reads and writes GGUF files, in which llama.cpp keeps a model: metadata by
// key, and tensors, most of them quantized in blocks. The format is described in
// docs/gguf.md of ggml-org/ggml. Versions 2 and 3 are read and version 3 is written, both
// little-endian.
//
// The package knows the container and the arithmetic of its blocks. It does not know what
// keys and tensors mean; package convert does. It quantizes only to F16, BF16 and Q8_0,
// and reads the types that Supported lists. The error for another type names it.
//
// Guarantees: a tensor is read a few rows at a time, so that memory does not grow with
// the file. Numbers are, to the bit, those of llama.cpp's reference code. Every count,
// length, offset and dimension is checked against the file's size before anything is
// allocated for it, so that a truncated, inconsistent or hostile file gives an error that
// wraps [ErrFormat] and no panic.
package gguf
