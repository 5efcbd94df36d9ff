package curriculum

import (
	"cmp"
	"slices"

	"github.com/fulgurite/fulgurite/record"
)

// candidate is a task inside or outside of the band, with what is known about it.
type candidate struct {
	task     int
	estimate          // zero for a task without results
	known    bool     // whether the task has results
	distance float64  // of its pass rate from the band
	rate     *float64 // nil where it is not known
}

// band fills the places with the tasks whose pass rate is between the bounds, in an order
// that depends on the step. A share of the places is for exploration: for tasks outside
// of the band, first those without results, then those that were not attempted for the
// longest time. If the band has too few tasks, tasks without results follow, then those
// whose rate is nearest to the band.
func (c *chooser) band() {
	low, high := *c.Curriculum.Low, c.Curriculum.High
	known := estimates(c.Results, c.Step, c.Curriculum.Forget, (low+high)/2)
	var inside, outside []candidate
	for _, task := range c.shuffled() {
		e, ok := known[task]
		one := candidate{task: task, estimate: e, known: ok, distance: max(low-e.rate, e.rate-high)}
		if ok {
			c.out.Known++
			one.rate = &one.estimate.rate
		}
		if ok && e.rate > low && e.rate < high {
			inside = append(inside, one)
		} else {
			outside = append(outside, one)
		}
	}
	c.out.Left, c.out.InBand = len(inside)+len(outside), len(inside)
	c.out.Low, c.out.High = low, high

	slices.SortStableFunc(outside, func(a, b candidate) int { return cmp.Compare(a.last, b.last) })
	for _, one := range outside[:min(c.explored(), len(outside))] {
		c.draw(one.task, record.ReasonExplored, one.rate)
	}
	for _, one := range inside {
		c.draw(one.task, record.ReasonBand, one.rate)
	}
	slices.SortStableFunc(outside, func(a, b candidate) int {
		if a.known != b.known {
			return cmp.Compare(rank(a.known), rank(b.known))
		}
		if !a.known {
			return 0
		}
		return cmp.Compare(a.distance, b.distance)
	})
	for _, one := range outside {
		why := record.ReasonNew
		if one.known {
			why = record.ReasonWidened
			if len(c.out.Draws) < c.Places && !c.drawn[one.task] {
				c.out.Low, c.out.High = min(c.out.Low, one.estimate.rate), max(c.out.High, one.estimate.rate)
			}
		}
		c.draw(one.task, why, one.rate)
	}
	if c.out.Low < low || c.out.High > high {
		c.note("too few tasks lie between %g and %g: widened to %.3g and %.3g", low, high, c.out.Low, c.out.High)
	}
}

// rank orders tasks without results before others.
func rank(known bool) int {
	if known {
		return 1
	}
	return 0
}

// explored returns how many places of the step are for exploration. Over many steps, this
// gives exactly the share in the spec.
func (c *chooser) explored() int {
	each := float64(*c.Curriculum.Explore * float64(c.Places))
	return int(float64(each*float64(c.Step))) - int(float64(each*float64(c.Step-1)))
}
