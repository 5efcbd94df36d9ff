// Package gguf reads and writes GGUF files, in which llama.cpp keeps a model: metadata
// by key, and tensors, most of them quantized in blocks. The format is described in
// docs/gguf.md of ggml-org/ggml; versions 2 and 3 are read, 3 is written, both
// little-endian.
//
// It knows the container and the arithmetic of its blocks, not what keys and tensors
// mean: package llamacpp does. It quantizes to F16, BF16 and Q8_0 only, and reads the
// types that Supported lists; another type is refused by name.
//
// Guarantees: a tensor is read a few rows at a time, so that memory does not grow with a
// file; numbers are, to the bit, those of llama.cpp's reference code; every count,
// length, offset and dimension is checked against the file's size before anything is
// allocated for it, so that a truncated, inconsistent or hostile file gives an error that
// wraps [ErrFormat], without a panic.
package gguf
