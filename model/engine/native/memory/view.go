package memory

import "unsafe"

// Halves returns the memory of x as numbers of two bytes.
func Halves(x []float32) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(x))), 2*len(x))
}

// Quarters returns the memory of x as numbers of one byte.
func Quarters(x []float32) []int8 {
	return unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// Bytes returns the memory of x as bytes.
func Bytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
