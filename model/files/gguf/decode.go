package gguf

import (
	"encoding/binary"
	"math"

	"github.com/fulgurite/fulgurite/model/half"
)

// The layouts of blocks follow ggml's ggml-common.h. The arithmetic follows
// dequantize_row_* in its ggml-quants.c. Each product is converted to float32 before
// something is added to it; otherwise a compiler may fuse both operations and give other
// bits.

func decodeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func decodeF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float16(src[2*i:])
	}
}

func decodeBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = half.FromBF16(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func float16(src []byte) float32 { return half.FromF16(binary.LittleEndian.Uint16(src)) }

// blocks returns a function that applies one, which decodes one block, to all blocks.
func blocks(numbers, bytes int, one func(dst []float32, src []byte)) func(dst []float32, src []byte) {
	return func(dst []float32, src []byte) {
		for len(dst) > 0 {
			one(dst[:numbers], src[:bytes])
			dst, src = dst[numbers:], src[bytes:]
		}
	}
}

// decodeQ4_0 decodes a block of: scale; then 4 bits per number, those of the first half
// in the low bits.
func decodeQ4_0(dst []float32, src []byte) {
	d := float16(src)
	for i, b := range src[2:18] {
		dst[i] = d * float32(int(b&15)-8)
		dst[i+16] = d * float32(int(b>>4)-8)
	}
}

// decodeQ4_1 decodes a block of: scale, minimum; then the bits of Q4_0.
func decodeQ4_1(dst []float32, src []byte) {
	d, m := float16(src), float16(src[2:])
	for i, b := range src[4:20] {
		dst[i] = float32(d*float32(b&15)) + m
		dst[i+16] = float32(d*float32(b>>4)) + m
	}
}

// decodeQ5_0 decodes a block of: scale, the fifth bits of all numbers; then the bits of
// Q4_0.
func decodeQ5_0(dst []float32, src []byte) {
	d, high := float16(src), binary.LittleEndian.Uint32(src[2:])
	for i, b := range src[6:22] {
		dst[i] = d * float32(int(b&15)+int(high>>i&1)<<4-16)
		dst[i+16] = d * float32(int(b>>4)+int(high>>(i+16)&1)<<4-16)
	}
}

// decodeQ5_1 decodes a block of: scale, minimum; then the bits of Q5_0.
func decodeQ5_1(dst []float32, src []byte) {
	d, m, high := float16(src), float16(src[2:]), binary.LittleEndian.Uint32(src[4:])
	for i, b := range src[8:24] {
		dst[i] = float32(d*float32(int(b&15)+int(high>>i&1)<<4)) + m
		dst[i+16] = float32(d*float32(int(b>>4)+int(high>>(i+16)&1)<<4)) + m
	}
}

// decodeQ8_0 decodes a block of: scale; then signed bytes.
func decodeQ8_0(dst []float32, src []byte) {
	d := float16(src)
	for i, b := range src[2:34] {
		dst[i] = d * float32(int8(b))
	}
}

// scaleAndMin returns the 6-bit scale and minimum of sub-block j of a Q4_K or Q5_K block.
// The first four of each are in the low bits of 8 bytes. The last 4 bytes hold nibbles
// for the other four, which the upper bits of those 8 bytes complete.
func scaleAndMin(packed []byte, j int) (scale, least float32) {
	if j < 4 {
		return float32(packed[j] & 63), float32(packed[j+4] & 63)
	}
	return float32(packed[j+4]&15 | packed[j-4]>>6<<4), float32(packed[j+4]>>4 | packed[j]>>6<<4)
}

// decodeQ4_K decodes a block of: scale of the scales, scale of the minima, 8 of each in 6
// bits; then 4 bits per number, in groups of 64 whose first half is in the low bits.
func decodeQ4_K(dst []float32, src []byte) {
	d, dmin := float16(src), float16(src[2:])
	for j := range 8 {
		scale, least := scaleAndMin(src[4:16], j)
		scale, least = d*scale, dmin*least
		for i, b := range src[16+32*(j/2):][:32] {
			dst[32*j+i] = float32(scale*float32(b>>(4*(j%2))&15)) - least
		}
	}
}

// decodeQ5_K is like decodeQ4_K, but 32 bytes behind the scales hold the fifth bits: that
// of number i of sub-block j is bit j of byte i.
func decodeQ5_K(dst []float32, src []byte) {
	d, dmin := float16(src), float16(src[2:])
	high := src[16:48]
	for j := range 8 {
		scale, least := scaleAndMin(src[4:16], j)
		scale, least = d*scale, dmin*least
		for i, b := range src[48+32*(j/2):][:32] {
			q := b>>(4*(j%2))&15 | high[i]>>j&1<<4
			dst[32*j+i] = float32(scale*float32(q)) - least
		}
	}
}

// decodeQ6_K decodes a block of: 4 low bits per number, 2 high bits per number, 16 signed
// scales of one byte, the scale of the scales. Its two halves of 128 numbers follow each
// other. In a half, sub-block j of 32 numbers has its low bits from byte 32·(j mod 2) on,
// and its high bits at bit 2j.
func decodeQ6_K(dst []float32, src []byte) {
	d := float16(src[208:])
	for n := range 2 {
		low, high, scales := src[64*n:], src[128+32*n:], src[192+8*n:]
		for j := range 4 {
			for i := range 32 {
				q := low[32*(j%2)+i]>>(4*(j/2))&15 | high[i]>>(2*j)&3<<4
				scale := d * float32(int8(scales[2*j+i/16]))
				dst[128*n+32*j+i] = scale * float32(int(q)-32)
			}
		}
	}
}
