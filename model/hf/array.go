package hf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Element is a type of number that an Array can hold.
type Element interface {
	float32 | float64 | int32 | uint8
}

// Array is a named dense array, row-major. Data is a []float32, []float64,
// []int32 or []uint8 (files call them F32, F64, I32 and U8) with as many numbers
// as Shape says.
type Array struct {
	Name  string
	Shape []int
	Data  any
}

// NewArray makes an array of rank 1 that shares data.
func NewArray[E Element](name string, data []E) Array {
	return Array{Name: name, Shape: []int{len(data)}, Data: data}
}

// Find returns the numbers of the array of that name and type.
func Find[E Element](arrays []Array, name string) ([]E, error) {
	for _, a := range arrays {
		if a.Name != name {
			continue
		}
		data, ok := a.Data.([]E)
		if !ok {
			return nil, fmt.Errorf("%w: array %s holds %T, want %T", ErrFormat, name, a.Data, data)
		}
		return data, nil
	}
	return nil, fmt.Errorf("%w: array %s is absent", ErrFormat, name)
}

// dtype is how a file spells a type of number.
type dtype string

const (
	f64  dtype = "F64"
	f32  dtype = "F32"
	f16  dtype = "F16"
	bf16 dtype = "BF16"
	i32  dtype = "I32"
	u8   dtype = "U8"
)

// width is the number of bytes of one number, 0 for a type that is not read.
func (d dtype) width() int {
	switch d {
	case f64:
		return 8
	case f32, i32:
		return 4
	case f16, bf16:
		return 2
	case u8:
		return 1
	}
	return 0
}

// dtype is how a is written, and how many numbers it has.
func (a Array) dtype() (dtype, int, error) {
	switch data := a.Data.(type) {
	case []float64:
		return f64, len(data), nil
	case []float32:
		return f32, len(data), nil
	case []int32:
		return i32, len(data), nil
	case []uint8:
		return u8, len(data), nil
	}
	return "", 0, fmt.Errorf("%w: array %s holds %T", ErrFormat, a.Name, a.Data)
}

// encode appends numbers [from, to) of a to b, little-endian.
func (a Array) encode(b []byte, from, to int) []byte {
	switch data := a.Data.(type) {
	case []float64:
		for _, x := range data[from:to] {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		}
	case []float32:
		for _, x := range data[from:to] {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
	case []int32:
		for _, x := range data[from:to] {
			b = binary.LittleEndian.AppendUint32(b, uint32(x))
		}
	case []uint8:
		b = append(b, data[from:to]...)
	}
	return b
}

// makeData allocates n numbers of the type that d is read into: half precision
// is widened, which is exact.
func makeData(d dtype, n int) any {
	switch d {
	case f64:
		return make([]float64, n)
	case i32:
		return make([]int32, n)
	case u8:
		return make([]uint8, n)
	}
	return make([]float32, n)
}

// decode fills data, from number at on, with what b holds as d.
func decode(d dtype, data any, at int, b []byte) {
	switch data := data.(type) {
	case []float64:
		for i := range len(b) / 8 {
			data[at+i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}
	case []int32:
		for i := range len(b) / 4 {
			data[at+i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case []uint8:
		copy(data[at:], b)
	case []float32:
		decodeFloats(d, data[at:], b)
	}
}

func decodeFloats(d dtype, out []float32, b []byte) {
	switch d {
	case f32:
		for i := range len(b) / 4 {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case bf16:
		for i := range len(b) / 2 {
			out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16)
		}
	case f16:
		for i := range len(b) / 2 {
			out[i] = fromHalf(binary.LittleEndian.Uint16(b[2*i:]))
		}
	}
}

// fromHalf widens an IEEE 754 binary16: 1 sign, 5 exponent and 10 fraction bits.
func fromHalf(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, uint32(h>>10)&0x1f, uint32(h)&0x3ff
	switch exponent {
	case 0x1f: // infinity, or a NaN whose payload is kept
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	case 0: // zero, or subnormal: fraction · 2^-24, exact in float32
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}
