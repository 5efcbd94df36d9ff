// Package memory keeps large arrays of numbers outside the garbage-collected heap.
//
// A model's weights, moments and activations live as long as its trainer or decoder
// and hold no pointers. On the heap they would set its pace: with 4 GB of them alive,
// the collector waits for as much garbage again before it runs. Here they are
// mapped when a trainer or decoder is made and given back to the system at once when
// it is closed, and the collector sees only what it can free.
//
// It is not an allocator: each array is a mapping of its own, and small ones come from
// the heap.
package memory

// heapNumbers is the size up to which arrays come from the heap.
const heapNumbers = 1 << 18

// Floats is an array of numbers. The zero value is an empty one.
type Floats struct {
	data   []float32
	mapped []byte // nil where the heap holds data
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

// Data are the numbers, until Free.
func (f *Floats) Data() []float32 { return f.data }

// Free gives the memory back. Slices of Data must not be used after it; a second call,
// or one for nil, does nothing.
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
