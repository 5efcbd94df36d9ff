package chart

// Axis maps an interval of values to places and says where its round ticks are. It is for
// drawings that a Plot is too little for.
type Axis struct{ scale scale }

// Tick is a round value of an axis and its label.
type Tick struct {
	Value float64
	Label string
}

// NewAxis covers at least low to high and begins and ends at ticks, of which there are
// about as many as asked for. Both ends have to be finite; equal ones are widened.
func NewAxis(low, high float64, ticks int) Axis {
	return Axis{roundScale(max(low, -largest), min(high, largest), ticks)}
}

// At is the place of v between the low end (0) and the high end (1).
func (a Axis) At(v float64) float64 { return a.scale.at(v) }

// Ticks are the ticks of the axis, from the low end to the high one.
func (a Axis) Ticks() []Tick {
	ticks := make([]Tick, a.scale.count)
	for i := range ticks {
		ticks[i] = Tick{a.scale.tick(i), a.scale.label(i)}
	}
	return ticks
}
