package experiment

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Outcome is how one conversation was judged.
type Outcome struct {
	// Unit is what was assigned: the hashed user, or the conversation's name.
	Unit string
	// Candidate says that the candidate answered, and not the control.
	Candidate bool
	// Value is between 0 and 1, the best.
	Value float64
	// At is when the feedback came.
	At time.Time
}

// Check returns an error that names the field that can't be compared.
func (o Outcome) Check() error {
	switch {
	case o.Unit == "":
		return errors.New("unit: missing: which user or conversation was judged?")
	case !(o.Value >= 0 && o.Value <= 1): // false for NaN
		return fmt.Errorf("value: %g: want 0 to 1", o.Value)
	}
	return nil
}

// Decision is what a comparison shows.
type Decision string

// The decisions. A later look at more outcomes may show another one: the rule acts on the
// first.
const (
	Undecided    Decision = "continue"
	Better       Decision = "better"
	Worse        Decision = "worse"
	NoDifference Decision = "no_difference" // that is larger than the margin
)

// Arm is what was judged of one version.
type Arm struct {
	Units         int     `json:"units"`
	Conversations int     `json:"conversations"`
	Mean          float64 `json:"mean"` // of the conversations, 0 if there are none
	// EffectiveUnits is how many equally active units would tell as much as these do at most:
	// the square of the sum of their conversations by the sum of the squares (Kish 1965).
	EffectiveUnits float64 `json:"effective_units"`
}

// MinUnits is how many effective units each version needs before an interval is given. The
// variance between fewer is too uncertain.
const MinUnits = 20

// Result is a look at an experiment.
type Result struct {
	// Difference is the mean of the candidate's conversations minus the control's, 0 if a
	// version has none.
	Difference float64 `json:"difference"`
	// StdError is the standard error of the difference, correct for users that are correlated
	// with themselves, for a single look. It is 0 as long as a version has fewer than two units.
	StdError float64 `json:"std_error"`
	// Low and High bound the difference: at all looks together, the true one is between
	// them with probability 1 - Level. They are -1 and 1 as long as nothing is known.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Level is the one of the settings.
	Level     float64  `json:"level"`
	Candidate Arm      `json:"candidate"`
	Control   Arm      `json:"control"`
	Decision  Decision `json:"decision"`
	// Until is when the latest of the outcomes came, zero if there are none.
	Until time.Time `json:"until,omitzero"`
}

// Known reports whether the result has an interval: before, the difference may be any.
func (r Result) Known() bool { return r.Low > -1 || r.High < 1 }

// String returns the result as a part of a sentence.
func (r Result) String() string {
	return fmt.Sprintf("a difference of %+.3f (%+.3f to %+.3f at level %g) between %d conversations of %d units with it and %d of %d without",
		r.Difference, r.Low, r.High, r.Level, r.Candidate.Conversations, r.Candidate.Units, r.Control.Conversations, r.Control.Units)
}

// Compare returns the result after all outcomes, or an error that names the setting or the
// outcome that can't be used.
func Compare(s Settings, outcomes []Outcome) (Result, error) {
	c, err := NewComparison(s)
	if err != nil {
		return Result{}, err
	}
	for i, o := range outcomes {
		if err := c.Add(o); err != nil {
			return Result{}, fmt.Errorf("compare outcome %d: %w", i, err)
		}
	}
	return c.Result(), nil
}

// Comparison is the test of an experiment. Outcomes are added in any order; another order
// changes a result only by rounding. Make one with [NewComparison]. Only one goroutine may
// use it.
type Comparison struct {
	settings Settings
	places   map[string]int // of units
	units    []unit         // in the order of their first outcomes, so that sums are too
	// The sums over units, of the control and of the candidate.
	control, candidate version
	until              time.Time
}

// unit sums up the conversations of a unit. A unit has conversations of both versions if its
// user became known only later.
type unit struct {
	control, candidate tally
}

// version sums up the conversations of a version.
type version struct {
	tally
	units   int
	squares float64 // of the conversations of each unit
}

func (v *version) add(u *tally, value float64) {
	if u.n == 0 {
		v.units++
	}
	v.squares += float64(2*u.n + 1) // (n+1)² - n²
	u.n++
	u.sum += value
	v.n++
	v.sum += value
}

func (v *version) arm() Arm {
	if v.n == 0 {
		return Arm{}
	}
	return Arm{Units: v.units, Conversations: v.n, Mean: v.mean(), EffectiveUnits: float64(v.n) * float64(v.n) / v.squares}
}

// tally counts and adds up values.
type tally struct {
	n   int
	sum float64
}

func (t tally) mean() float64 { return t.sum / float64(t.n) }

// without returns the mean of what is left of t without a part of it.
func (t tally) without(part tally) float64 {
	return tally{t.n - part.n, t.sum - part.sum}.mean()
}

// NewComparison returns a comparison without outcomes, or an error that names the setting
// that can't be used.
func NewComparison(s Settings) (*Comparison, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	return &Comparison{settings: s, places: map[string]int{}}, nil
}

// Add adds an outcome, or returns an error that names its field and changes nothing.
func (c *Comparison) Add(o Outcome) error {
	if err := o.Check(); err != nil {
		return err
	}
	place, ok := c.places[o.Unit]
	if !ok {
		place = len(c.units)
		c.places[o.Unit] = place
		c.units = append(c.units, unit{})
	}
	u := &c.units[place]
	if o.Candidate {
		c.candidate.add(&u.candidate, o.Value)
	} else {
		c.control.add(&u.control, o.Value)
	}
	if o.At.After(c.until) {
		c.until = o.At
	}
	return nil
}

// Result returns what the outcomes so far show.
func (c *Comparison) Result() Result {
	r := Result{Low: -1, High: 1, Level: c.settings.Level, Decision: Undecided, Until: c.until}
	r.Candidate, r.Control = c.candidate.arm(), c.control.arm()
	if r.Candidate.Units == 0 || r.Control.Units == 0 {
		return r
	}
	r.Difference = r.Candidate.Mean - r.Control.Mean
	if r.Candidate.Units < 2 || r.Control.Units < 2 {
		return r
	}
	variance := c.variance(r.Difference)
	r.StdError = math.Sqrt(variance)
	if min(r.Candidate.EffectiveUnits, r.Control.EffectiveUnits) < MinUnits {
		return r
	}
	one, zero := float64(r.Candidate.Conversations), float64(r.Control.Conversations)
	n := one * zero / (one + zero)
	radius := c.settings.boundary(n*n*variance) / n
	r.Low, r.High = max(-1, r.Difference-radius), min(1, r.Difference+radius)
	margin := c.settings.Margin
	switch {
	case r.Difference > radius:
		r.Decision = Better
	case r.Difference < -radius:
		r.Decision = Worse
	case margin > 0 && r.Low > -margin && r.High < margin:
		r.Decision = NoDifference
	}
	return r
}

// variance returns the jackknife variance of the difference of means over units. Each
// version has at least two units.
func (c *Comparison) variance(difference float64) float64 {
	var sum float64
	one, zero := c.candidate.mean(), c.control.mean()
	for _, u := range c.units {
		a, b := one, zero
		if u.candidate.n > 0 {
			a = c.candidate.without(u.candidate)
		}
		if u.control.n > 0 {
			b = c.control.without(u.control)
		}
		change := a - b - difference
		sum += float64(change * change) // rounded, so that no processor fuses it with the addition
	}
	return sum
}
