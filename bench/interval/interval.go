// Package interval computes confidence intervals of the mean of a few measurements.
package interval

import (
	"fmt"
	"math"
)

// Mean is a mean with half the width of its 95 % interval, by Student's t.
type Mean struct{ Value, Half float64 }

// Of returns the mean of x. A single number has no interval: Half is NaN.
func Of(x []float64) Mean {
	mean, deviation := moments(x)
	m := Mean{mean, math.NaN()}
	if len(x) > 1 {
		m.Half = quantile(len(x)-1) * deviation
	}
	return m
}

// AtLeast returns the one-sided 95 % bound below the mean of x. A single number has none,
// and gives NaN.
func AtLeast(x []float64) float64 {
	if len(x) < 2 {
		return math.NaN()
	}
	mean, deviation := moments(x)
	return mean - quantileOneSided(len(x)-1)*deviation
}

// moments returns the mean of x and the standard deviation of that mean.
func moments(x []float64) (mean, deviation float64) {
	n := float64(len(x))
	sum, squares := 0.0, 0.0
	for _, v := range x {
		sum += v
	}
	mean = sum / n
	for _, v := range x {
		squares += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(squares / (n - 1) / n)
}

// Geometric returns the geometric mean of ratios and the ends of its 95 % interval,
// computed from their logarithms.
func Geometric(ratios []float64) (mean, low, high float64) {
	logs := make([]float64, len(ratios))
	for i, r := range ratios {
		logs[i] = math.Log(r)
	}
	m := Of(logs)
	return math.Exp(m.Value), math.Exp(m.Value - m.Half), math.Exp(m.Value + m.Half)
}

func (m Mean) String() string {
	if math.IsNaN(m.Half) {
		return fmt.Sprintf("%.3f", m.Value)
	}
	return fmt.Sprintf("%.3f ± %.3f", m.Value, m.Half)
}

// quantile returns Student's t at 0.975 for a number of degrees of freedom, rounded up.
func quantile(freedom int) float64 {
	table := []float64{math.Inf(1), 12.707, 4.303, 3.183, 2.777, 2.571, 2.447, 2.365, 2.307, 2.263, 2.229}
	return table[min(freedom, len(table)-1)] // with more degrees, the last value is too large, which is safe
}

// quantileOneSided returns Student's t at 0.95, likewise.
func quantileOneSided(freedom int) float64 {
	table := []float64{math.Inf(1), 6.314, 2.920, 2.354, 2.132, 2.016, 1.944, 1.895, 1.860, 1.834, 1.813}
	return table[min(freedom, len(table)-1)]
}
