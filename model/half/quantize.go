package half

import "math"

// QuantBlock is how many numbers of a row share a factor in Q8_0.
const QuantBlock = 32

// Quantize sets block to the whole numbers that, times the factor it returns, are nearest
// to those of x, at most QuantBlock: llama.cpp's Q8_0 (quantize_row_q8_0_ref), whose
// factor takes the largest number to 127 and is rounded to F16. Numbers that came from
// this stay as they are. Numbers beyond 127 times those of F16 make the factor infinite.
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
