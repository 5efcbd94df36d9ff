package gomlx

import (
	"math"
	"sync"

	"github.com/fulgurite/fulgurite/model"
)

// rotary is a table of cosines and sines that grows as positions are asked for.
type rotary struct {
	half        int
	frequencies []float64 // radians a position

	mu       sync.Mutex
	cos, sin []float32 // half numbers for each position
}

func newRotary(a model.Architecture) *rotary {
	r := &rotary{half: a.HeadDim / 2}
	for i := range r.half {
		r.frequencies = append(r.frequencies, a.RopeScaling.Frequency(math.Pow(a.RopeTheta, -float64(i)/float64(r.half))))
	}
	return r
}

// table returns the cosines and sines of positions 0 to n−1. They are shared and
// must not be changed.
func (r *rotary) table(n int) (cos, sin []float32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := len(r.cos) / r.half; p < n; p++ {
		for _, frequency := range r.frequencies {
			s, c := math.Sincos(float64(p) * frequency)
			r.cos, r.sin = append(r.cos, float32(c)), append(r.sin, float32(s))
		}
	}
	end := n * r.half
	return r.cos[:end:end], r.sin[:end:end]
}
