package chart

import (
	"math"
	"strconv"
)

// scale maps an interval of values to positions and knows its ticks.
type scale struct {
	low, high float64
	first     float64 // the first tick
	step      float64 // between ticks
	count     int     // of ticks
}

// roundScale covers at least low to high and begins and ends at ticks.
func roundScale(low, high float64, ticks int) scale {
	low, high = apart(low, high)
	step := roundStep(high-low, ticks)
	first := math.Floor(low/step+1e-9) * step
	count := int(math.Ceil((high-first)/step-1e-9)) + 1
	return scale{first, first + float64(count-1)*step, first, step, count}
}

// apart widens an interval that has no length, or one too small for the
// precision of its ends.
func apart(low, high float64) (float64, float64) {
	least := max(1e-9*max(math.Abs(low), math.Abs(high)), 1e-150)
	if high-low >= least {
		return low, high
	}
	middle := low + (high-low)/2
	half := max(math.Abs(middle)/2, 0.5)
	return middle - half, middle + half
}

// roundStep returns the smallest of 1, 2 and 5 times a power of ten with which the span
// has at most the given number of steps. There is always at least one step.
func roundStep(span float64, steps int) float64 {
	raw := span / float64(max(steps, 1))
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= raw*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// at returns the position of v between low (0) and high (1).
func (s scale) at(v float64) float64 {
	return min(max((v-s.low)/(s.high-s.low), 0), 1)
}

func (s scale) tick(i int) float64 {
	v := s.first + float64(i)*s.step
	if math.Abs(v) < s.step/2 {
		return 0 // not 1e-17, and not negative zero
	}
	return v
}

// label returns the text of a tick, with as many digits as distinguish it from its
// neighbours.
func (s scale) label(i int) string {
	v := s.tick(i)
	widest := max(math.Abs(s.first), math.Abs(s.tick(s.count-1)))
	if widest >= 1e7 || widest < 1e-4 {
		digits := int(math.Ceil(math.Log10(widest/s.step)+1e-9)) + 1
		return strconv.FormatFloat(v, 'g', min(digits, 17), 64)
	}
	decimals := max(0, int(math.Ceil(-math.Log10(s.step)-1e-9)))
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// labels returns the labels of all ticks, and the width of the widest in characters.
func (s scale) labels() (labels []string, width int) {
	for i := range s.count {
		labels = append(labels, s.label(i))
		width = max(width, len(labels[i]))
	}
	return labels, width
}
