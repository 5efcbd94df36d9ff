package native

import "github.com/fulgurite/fulgurite/model/native/kernel"

// arena lends slices until the next reset. After the first rounds it has grown
// to what is needed and allocates no more. What it lends is not zeroed.
type arena struct {
	data []float32
	used int
}

func (a *arena) reset() {
	if a.used > len(a.data) {
		a.data = make([]float32, a.used)
	}
	a.used = 0
}

func (a *arena) alloc(n int) []float32 {
	n = kernel.Pad(n)
	from := a.used
	a.used += n
	if a.used > len(a.data) {
		return make([]float32, n)
	}
	return a.data[from:a.used:a.used]
}
