package curriculum

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/shuffle"
	"github.com/fulgurite/fulgurite/tasks/stream"
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

// stage draws from the tasks of the stage, epoch after epoch, so that each task is drawn
// once before any is drawn again. A step that spans two epochs may deviate from this, in
// order not to draw a task twice. Reserves come from a separate stream of the step.
func (c *chooser) stage() {
	c.out.Stage, c.out.Since = 0, 1
	if c.Before != nil {
		c.out.Stage, c.out.Since = c.Before.Stage, c.Before.Since
		if why := c.ended(); why != "" {
			c.out.Stage, c.out.Since = c.out.Stage+1, c.Step
			c.out.Moved = fmt.Sprintf("stage %s begins, since %s", c.Curriculum.Title(c.out.Stage), why)
		}
	}
	c.out.Title = c.Curriculum.Title(c.out.Stage)
	members := c.Stages[c.out.Stage]
	for _, task := range members {
		if !c.Quarantined[task] {
			c.out.Left++
		}
	}
	seed, n := shuffle.Key(curriculumDomain, c.Seed, uint64(c.out.Stage)), len(members)
	first := (c.Step - c.out.Since) * c.Places
	for i := first; i < first+2*n && len(c.out.Draws) < min(c.Places, c.out.Left); i++ {
		at, _ := stream.At(seed, n, i)
		c.draw(members[at], record.ReasonStage, nil)
	}
	for k := 0; k < n && !c.full(); k++ {
		c.draw(members[stream.Reserve(seed, n, c.Step, k)], record.ReasonStage, nil)
	}
}

// ended returns why the previous step's stage has ended, and "" if it has not.
func (c *chooser) ended() string {
	stage, since := c.Before.Stage, c.Before.Since
	if stage+1 == len(c.Stages) {
		return ""
	}
	until, title := c.Curriculum.Stages[stage].Until, c.Curriculum.Title(stage)
	if n := c.Step - since; until.Steps > 0 && n >= until.Steps {
		return fmt.Sprintf("stage %s had its %s", title, readable.Count(n, "step"))
	}
	if from := c.Finished - until.Over + 1; until.Reward != nil && from >= since {
		samples, sum := 0, 0.0
		for _, r := range c.Results {
			if r.Step >= from && r.Step <= c.Finished {
				samples, sum = samples+r.Samples, sum+r.Sum
			}
		}
		if mean := sum / float64(samples); samples > 0 && spec.Reaches(mean, *until.Reward) {
			return fmt.Sprintf("the mean reward of steps %d to %d is %.3g, and stage %s should reach %g", from, c.Finished, mean, title, *until.Reward)
		}
	}
	if until.Evaluation == nil {
		return ""
	}
	newest := record.EvaluationResult{Version: -1}
	for _, e := range c.Evaluations {
		if e.Version >= since && e.Version <= c.Finished && e.Version > newest.Version {
			newest = e
		}
	}
	if newest.Version < 0 || !spec.Reaches(newest.Mean, *until.Evaluation) {
		return ""
	}
	return fmt.Sprintf("version %d has %.3g on the gate split, and stage %s should reach %g", newest.Version, newest.Mean, title, *until.Evaluation)
}
