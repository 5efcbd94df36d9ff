package native

import "math"

// rotary holds the cosines and sines of rotary embedding, position after
// position, for as many positions as were needed so far.
type rotary struct {
	half     int       // padded
	inverse  []float64 // radians a position
	cos, sin []float32
	rows     int
}

func newRotary(l *layout) *rotary {
	r := &rotary{half: l.h / 2}
	pairs := l.HeadDim / 2
	root, power := root(l.RopeTheta, pairs), 1.0
	for range pairs {
		r.inverse = append(r.inverse, l.RopeScaling.Frequency(1/power))
		power *= root
	}
	return r
}

// root returns the n-th root of x > 0, exact to the last few bits. math.Pow would do, but
// it calls an exponential whose bits depend on the processor.
func root(x float64, n int) float64 {
	low, high := min(x, 1), max(x, 1)
	for {
		middle := low + (high-low)/2
		if middle <= low || middle >= high {
			return low
		}
		power := 1.0
		for range n {
			power *= middle
		}
		if power > x {
			high = middle
		} else {
			low = middle
		}
	}
}

// reserve makes positions below n usable.
func (r *rotary) reserve(n int) {
	if n <= r.rows {
		return
	}
	n = max(n, 2*r.rows, 64)
	cos, sin := make([]float32, n*r.half), make([]float32, n*r.half)
	copy(cos, r.cos)
	copy(sin, r.sin)
	for position := r.rows; position < n; position++ {
		for i, inverse := range r.inverse {
			s, c := math.Sincos(float64(position) * inverse)
			cos[position*r.half+i], sin[position*r.half+i] = float32(c), float32(s)
		}
	}
	r.cos, r.sin, r.rows = cos, sin, n
}

// at returns the angles of one position.
func (r *rotary) at(position int) (cos, sin []float32) {
	from, to := position*r.half, (position+1)*r.half
	return r.cos[from:to], r.sin[from:to]
}
