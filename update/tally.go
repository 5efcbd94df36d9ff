package update

import (
	"math"
	"strings"
)

// tally sums up the descriptions of the updates made so far.
type tally struct {
	updates int
	sums    map[string]float64 // or the greatest; see isMaximum
	last    map[string]float64
}

func (t *tally) add(metrics map[string]float64) {
	t.updates++
	t.last = metrics
	if t.sums == nil {
		t.sums = map[string]float64{}
	}
	for name, v := range metrics {
		if isMaximum(name) {
			t.sums[name] = math.Max(t.sums[name], v)
			continue
		}
		t.sums[name] += v
	}
}

// value is the mean of a number over the updates, or the greatest.
func (t *tally) value(name string) float64 {
	if isMaximum(name) {
		return t.sums[name]
	}
	return t.sums[name] / float64(t.updates)
}

// isMaximum reports whether a metric is a maximum, whose mean would say little. No such
// metric is negative.
func isMaximum(name string) bool { return strings.HasSuffix(name, "_max") }
