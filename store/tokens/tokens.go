// Package tokens encodes tokens, their log-probabilities and their loss marks as bytes,
// and digests tokens.
package tokens

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"math"
	"slices"
)

var errTokens = errors.New("bad token bytes")

// Encode writes each token as a varint: one or two bytes for small
// vocabularies, three for the largest.
func Encode(tokens []int32) []byte {
	out := make([]byte, 0, 2*len(tokens))
	for _, t := range tokens {
		out = binary.AppendUvarint(out, uint64(uint32(t)))
	}
	return out
}

// Decode appends the tokens of b to out.
func Decode(out []int32, b []byte) ([]int32, error) {
	for len(b) > 0 {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > math.MaxUint32 {
			return nil, fmt.Errorf("%w: %d left", errTokens, len(b))
		}
		out = append(out, int32(uint32(v)))
		b = b[n:]
	}
	return out, nil
}

// Count returns how many tokens Decode would return. Only the last byte of a token's
// varint has no continuation bit.
func Count(b []byte) int {
	n := 0
	for _, c := range b {
		if c < 0x80 {
			n++
		}
	}
	return n
}

// EncodeLogprobs writes four bytes for each value.
func EncodeLogprobs(values []float32) []byte {
	out := make([]byte, 0, 4*len(values))
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

// DecodeLogprobs reads what EncodeLogprobs wrote.
func DecodeLogprobs(b []byte) ([]float32, error) {
	if len(b)%4 != 0 {
		return nil, fmt.Errorf("%w: %d bytes of log-probabilities", errTokens, len(b))
	}
	out := make([]float32, 0, len(b)/4)
	for ; len(b) > 0; b = b[4:] {
		out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return out, nil
}

// EncodeMarks returns one byte for each mark, and nil if there are none.
func EncodeMarks(marks []bool) []byte {
	if len(marks) == 0 {
		return nil
	}
	out := make([]byte, len(marks))
	for i, m := range marks {
		if m {
			out[i] = 1
		}
	}
	return out
}

// DecodeMarks reads what EncodeMarks wrote.
func DecodeMarks(b []byte) []bool {
	if len(b) == 0 {
		return nil
	}
	out := make([]bool, len(b))
	for i, m := range b {
		out[i] = m != 0
	}
	return out
}

// Chain computes a digest of a growing list of tokens.
type Chain struct {
	hash   hash.Hash
	buffer []byte
}

// NewChain returns a chain without tokens.
func NewChain() *Chain { return &Chain{hash: sha256.New()} }

// Add appends tokens to the chain.
func (c *Chain) Add(tokens []int32) *Chain {
	c.buffer = slices.Grow(c.buffer[:0], 4*len(tokens))
	for _, t := range tokens {
		c.buffer = binary.LittleEndian.AppendUint32(c.buffer, uint32(t))
	}
	_, _ = c.hash.Write(c.buffer) // a hash never fails
	return c
}

// Digest returns the digest of all tokens so far.
func (c *Chain) Digest() []byte { return c.hash.Sum(nil) }
