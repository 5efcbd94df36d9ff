package native

import (
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
	"github.com/fulgurite/fulgurite/model/engine/native/memory"
)

// arena lends slices that are valid until the next layOut. It grows to what the largest
// layout needs and then allocates no more. The slices are not zeroed.
type arena struct {
	held *memory.Floats
	data []float32
	used int
}

// layOut runs take, whose calls of alloc divide the memory among them. If the arena has
// to grow, take runs twice, and in the first run alloc may return nil. So take must not
// read or write the slices that it gets.
func (a *arena) layOut(take func()) {
	a.used = 0
	take()
	if a.used <= len(a.data) {
		return
	}
	a.free()
	a.held = memory.New(a.used)
	a.data, a.used = a.held.Data(), 0
	take()
}

func (a *arena) alloc(n int) []float32 {
	n = kernel.Pad(n)
	from := a.used
	a.used += n
	if a.used > len(a.data) {
		return nil
	}
	return a.data[from:a.used:a.used]
}

func (a *arena) free() {
	a.data = nil
	a.held.Free()
}
