package chart

// Axis maps an interval of values to positions and knows its round ticks. It is for
// drawings that a Plot cannot describe.
type Axis struct{ scale scale }

// Tick is a round value of an axis and its label.
type Tick struct {
	Value float64
	Label string
}

// NewAxis returns an axis that covers at least low to high and begins and ends at ticks.
// The number of ticks is about the given one. Both ends have to be finite; if they are
// equal, the interval is widened.
func NewAxis(low, high float64, ticks int) Axis {
	return Axis{roundScale(max(low, -largest), min(high, largest), ticks)}
}

// At returns the position of v between the low end (0) and the high end (1).
func (a Axis) At(v float64) float64 { return a.scale.at(v) }

// Ticks returns the ticks of the axis, from the low end to the high one.
func (a Axis) Ticks() []Tick {
	ticks := make([]Tick, a.scale.count)
	for i := range ticks {
		ticks[i] = Tick{a.scale.tick(i), a.scale.label(i)}
	}
	return ticks
}
