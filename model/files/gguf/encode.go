package gguf

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/fulgurite/fulgurite/model/half"
)

// Encode appends numbers to b as type t: F32, F16, BF16 or Q8_0. For Q8_0 the numbers
// have to fill whole blocks. It returns an error for a number that F16 cannot hold, and
// for a number that is not finite if t is Q8_0.
func Encode(b []byte, t Type, numbers []float32) ([]byte, error) {
	switch t {
	case F32:
		for _, x := range numbers {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
	case F16:
		return half.AppendF16(b, numbers)
	case BF16:
		return half.AppendBF16(b, numbers), nil
	case Q8_0:
		if len(numbers)%32 != 0 {
			return nil, fmt.Errorf("%d numbers are not whole blocks of Q8_0", len(numbers))
		}
		for ; len(numbers) > 0; numbers = numbers[32:] {
			var err error
			if b, err = encodeQ8_0(b, numbers[:32]); err != nil {
				return nil, err
			}
		}
	default:
		return nil, fmt.Errorf("%s is not written: F32, F16, BF16 and Q8_0 are", t)
	}
	return b, nil
}

// encodeQ8_0 appends a block: its factor and 32 numbers.
func encodeQ8_0(b []byte, numbers []float32) ([]byte, error) {
	for _, x := range numbers {
		if x != x {
			return nil, fmt.Errorf("%v cannot be quantized", x)
		}
	}
	var block [half.QuantBlock]int8
	factor := half.Quantize(&block, numbers)
	if math.IsInf(float64(factor), 0) {
		return nil, fmt.Errorf("%v is beyond the numbers of Q8_0", slices.MaxFunc(numbers, func(x, y float32) int { return cmp.Compare(max(x, -x), max(y, -y)) }))
	}
	b = binary.LittleEndian.AppendUint16(b, half.ToF16(factor))
	for _, q := range block {
		b = append(b, byte(q))
	}
	return b, nil
}
