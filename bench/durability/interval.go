package main

import "math"

// interval is the geometric mean of ratios and the ends of its 95 % interval,
// by Student's t over their logarithms. One ratio has no interval.
func interval(ratios []float64) (mean, low, high float64) {
	n := float64(len(ratios))
	sum := 0.0
	for _, r := range ratios {
		sum += math.Log(r)
	}
	m := sum / n
	squares := 0.0
	for _, r := range ratios {
		d := math.Log(r) - m
		squares += d * d
	}
	half := quantile(len(ratios)-1) * math.Sqrt(squares/(n-1)/n)
	return math.Exp(m), math.Exp(m - half), math.Exp(m + half)
}

// quantile is Student's t at 0.975 for some degrees of freedom, rounded up.
func quantile(freedom int) float64 {
	table := []float64{math.Inf(1), 12.707, 4.303, 3.183, 2.777, 2.571, 2.447, 2.365, 2.307, 2.263, 2.229}
	if freedom < len(table) {
		return table[freedom]
	}
	return table[len(table)-1] // more are better than that
}
