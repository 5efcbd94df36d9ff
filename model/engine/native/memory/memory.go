// Package memory keeps large arrays of numbers outside the garbage-collected heap.
//
// A model's weights, moments and activations live as long as its trainer or decoder and
// hold no pointers. On the heap they would set the collector's pace: with 4 GB of them
// alive, it runs only after another 4 GB of garbage. Here they are mapped when a trainer
// or decoder is made and returned to the system as soon as it is closed, and the
// collector sees only what it can free.
//
// It is not an allocator: each array is one mapping, and small arrays come from the heap.
package memory

import "unsafe"

// heapNumbers is the size up to which arrays come from the heap.
const heapNumbers = 1 << 18

// Floats is an array of numbers. The zero value is an empty one.
type Floats struct {
	data   []float32
	mapped []byte // nil if data is on the heap
}

// New returns n numbers, all zero.
func New(n int) *Floats {
	if n > heapNumbers {
		if f := mapFloats(n); f != nil {
			return f
		}
	}
	return &Floats{data: make([]float32, n)}
}

// Data returns the numbers. They are valid until Free.
func (f *Floats) Data() []float32 { return f.data }

// Free gives the memory back. Slices of Data must not be used after it. A second call, or
// a call with a nil receiver, does nothing.
func (f *Floats) Free() {
	if f == nil {
		return
	}
	f.data = nil
	if f.mapped != nil {
		unmap(f.mapped)
		f.mapped = nil
	}
}

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
