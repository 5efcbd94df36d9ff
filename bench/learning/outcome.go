package main

import (
	"strings"

	"github.com/fulgurite/fulgurite/internal/chart"
)

// outcome is the outcome of the runs of one variant, one number for each seed.
type outcome struct {
	all, last, test []float64
	curves          [][]float64
	seconds         float64 // of a run
}

// add adds the run of the next seed: the reward of each step, and the reward of the last
// version on the test split.
func (o *outcome) add(curve []float64, test float64) {
	o.curves = append(o.curves, curve)
	o.all = append(o.all, mean(curve))
	o.last = append(o.last, mean(curve[len(curve)-max(1, len(curve)/10):]))
	o.test = append(o.test, test)
}

// series returns the mean curve over all seeds.
func (o outcome) series(name string) chart.Series {
	s := chart.Series{Name: strings.TrimSpace(name)}
	for step := range o.curves[0] {
		sum := 0.0
		for _, curve := range o.curves {
			sum += curve[step]
		}
		s.Points = append(s.Points, chart.Point{X: float64(step + 1), Y: sum / float64(len(o.curves))})
	}
	return s
}

// differences returns the differences between two variants, seed by seed. Runs of the
// same seed begin with the same weights and use the same tasks, so the effects of these
// cancel out.
func differences(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] - b[i]
	}
	return out
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}
