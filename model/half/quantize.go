package half

import "math"

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
