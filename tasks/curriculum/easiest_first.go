package curriculum

import (
	"cmp"
	"math"
	"slices"

	"github.com/fulgurite/fulgurite/record"
)

// easiestFirst draws from the easiest tasks, in an order that depends on the step. The
// share of these tasks grows from step to step until it covers all tasks (Platanios et
// al., 2019, "Competence-based Curriculum Learning").
func (c *chooser) easiestFirst() {
	order := c.shuffled()
	c.out.Left = len(order)
	difficulty := make(map[int]*float64, len(order))
	if c.Difficulty != nil {
		for _, task := range order {
			difficulty[task] = &c.Difficulty[task]
		}
	} else {
		for task, e := range estimates(c.Results, c.Step, c.Curriculum.Forget, unknownRate) {
			hard := 1 - e.rate
			difficulty[task] = &hard
			if !c.Quarantined[task] {
				c.out.Known++
			}
		}
	}
	of := func(task int) float64 {
		if d := difficulty[task]; d != nil {
			return *d
		}
		return 1 - unknownRate
	}
	easiest := slices.Clone(order)
	slices.SortStableFunc(easiest, func(a, b int) int { return cmp.Compare(of(a), of(b)) })
	c.out.Open = min(len(order), max(c.Places, int(math.Ceil(float64(c.share()*float64(len(order)))))))
	open := make(map[int]bool, c.out.Open)
	for _, task := range easiest[:c.out.Open] {
		open[task] = true
	}
	for _, task := range order {
		if open[task] {
			c.draw(task, record.ReasonEasy, difficulty[task])
		}
	}
	for _, task := range easiest[c.out.Open:] {
		c.draw(task, record.ReasonHarder, difficulty[task])
	}
}

// unknownRate is the pass rate of a task without results.
const unknownRate = 0.5

// share returns the share of the tasks from which the step chooses.
func (c *chooser) share() float64 {
	steps := c.Curriculum.Steps
	if steps == 0 {
		steps = max(1, c.Steps/2)
	}
	grown := min(1, float64(c.Step-1)/float64(steps))
	return float64(c.Curriculum.Start) + float64(float64(1-c.Curriculum.Start)*grown)
}
