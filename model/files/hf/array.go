package hf

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/model/half"
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

// NewArray returns an array of rank 1 that shares data.
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

// DType is how a file spells a type of number.
type DType string

// The types of a model's weights, and bytes.
const (
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
	U8   DType = "U8"
)

// Other types of arrays.
const (
	f64 DType = "F64"
	i32 DType = "I32"
)

// width returns the number of bytes of one number, and 0 for a type that is not read.
func (d DType) width() int {
	switch d {
	case f64:
		return 8
	case F32, i32:
		return 4
	case F16, BF16:
		return 2
	case U8:
		return 1
	}
	return 0
}

// dtype returns the type in which a is written, and how many numbers it has.
func (a Array) dtype() (DType, int, error) {
	switch data := a.Data.(type) {
	case []float64:
		return f64, len(data), nil
	case []float32:
		return F32, len(data), nil
	case []int32:
		return i32, len(data), nil
	case []uint8:
		return U8, len(data), nil
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
func makeData(d DType, n int) any {
	switch d {
	case f64:
		return make([]float64, n)
	case i32:
		return make([]int32, n)
	case U8:
		return make([]uint8, n)
	}
	return make([]float32, n)
}

// decode fills data from index at on with the numbers in b, which have type d.
func decode(d DType, data any, at int, b []byte) {
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

func decodeFloats(d DType, out []float32, b []byte) {
	switch d {
	case F32:
		for i := range len(b) / 4 {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case BF16:
		for i := range len(b) / 2 {
			out[i] = half.FromBF16(binary.LittleEndian.Uint16(b[2*i:]))
		}
	case F16:
		for i := range len(b) / 2 {
			out[i] = half.FromF16(binary.LittleEndian.Uint16(b[2*i:]))
		}
	}
}
