// Package half converts float32 to and from the two floating-point formats of 16 bits
// that model files use: IEEE 754 binary16 (F16: 5 bits of exponent, 10 of fraction) and
// bfloat16 (BF16: the upper half of a float32).
//
// [Quantize] rounds to llama.cpp's Q8_0, whose factors are F16.
//
// It computes nothing in these formats. Widening is exact; narrowing rounds to the
// nearest number and, halfway between two, to the even one, as NumPy and PyTorch do.
package half

import (
	"encoding/binary"
	"fmt"
	"math"
)

// FromF16 widens a binary16; a NaN keeps its payload.
func FromF16(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, uint32(h>>10)&0x1f, uint32(h)&0x3ff
	switch exponent {
	case 0x1f: // infinity or NaN
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	case 0: // zero, or subnormal: fraction · 2^-24, exact in float32
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// ToF16 narrows to binary16. What is too large becomes infinity.
func ToF16(x float32) uint16 {
	bits := math.Float32bits(x)
	sign, bits := uint16(bits>>16)&0x8000, bits&0x7fffffff
	switch {
	case bits > 0x7f800000: // NaN: its upper payload bits, and the bit that keeps it one
		return sign | 0x7e00 | uint16(bits>>13)&0x3ff
	case bits >= 0x477ff000: // at least 65520, halfway between the largest number and 2^16
		return sign | 0x7c00
	case bits < 0x38800000: // below 2^-14: subnormal, in units of 2^-24
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(bits))*0x1p24))
	}
	bits += 0xfff + bits>>13&1 // a carry into the exponent is right
	return sign | uint16((bits-(127-15)<<23)>>13)
}

// FromBF16 widens a bfloat16.
func FromBF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// ToBF16 narrows to bfloat16; a NaN becomes a quiet one.
func ToBF16(x float32) uint16 {
	bits := math.Float32bits(x)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// AppendF16 appends numbers as binary16, little-endian. A finite number that is too large
// for it is an error.
func AppendF16(b []byte, numbers []float32) ([]byte, error) {
	for _, x := range numbers {
		h := ToF16(x)
		if h&0x7fff == 0x7c00 && !math.IsInf(float64(x), 0) {
			return nil, fmt.Errorf("%v is beyond the numbers of F16", x)
		}
		b = binary.LittleEndian.AppendUint16(b, h)
	}
	return b, nil
}

// AppendBF16 appends numbers as bfloat16, little-endian.
func AppendBF16(b []byte, numbers []float32) []byte {
	for _, x := range numbers {
		b = binary.LittleEndian.AppendUint16(b, ToBF16(x))
	}
	return b
}

// QuantBlock is how many numbers of a row share a factor in Q8_0.
const QuantBlock = 32

// Quantize rounds the numbers of x, at most QuantBlock of them, to integers times a
// factor. It stores the integers in block and returns the factor. This is llama.cpp's
// Q8_0 (quantize_row_q8_0_ref): the factor, rounded to F16, maps the largest absolute
// number to 127. Numbers that are results of Quantize do not change. If a number is
// larger than 127 times the largest of F16, the factor is infinite.
func Quantize(block *[QuantBlock]int8, x []float32) (factor float32) {
	var most float32
	for _, v := range x {
		most = max(most, max(v, -v))
	}
	d := most / 127
	var inverse float32
	if d != 0 {
		inverse = 1 / d
	}
	for i, v := range x {
		block[i] = int8(math.Round(float64(v * inverse)))
	}
	return FromF16(ToF16(d))
}
