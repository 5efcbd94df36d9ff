package gomlx

import (
	"math"
	"sync"

	"github.com/fulgurite/fulgurite/model"
)

// rotary is a table of cosines and sines that grows as positions are asked for.
type rotary struct {
	half  int
	theta float64

	mu       sync.Mutex
	cos, sin []float32 // half numbers for each position
}

func newRotary(a model.Architecture) *rotary {
	return &rotary{half: a.HeadDim / 2, theta: a.RopeTheta}
}

// table returns the cosines and sines of positions 0 to n−1. They are shared and
// must not be changed.
func (r *rotary) table(n int) (cos, sin []float32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := len(r.cos) / r.half; p < n; p++ {
		for i := range r.half {
			s, c := math.Sincos(float64(p) * math.Pow(r.theta, -float64(i)/float64(r.half)))
			r.cos, r.sin = append(r.cos, float32(c)), append(r.sin, float32(s))
		}
	}
	end := n * r.half
	return r.cos[:end:end], r.sin[:end:end]
}
