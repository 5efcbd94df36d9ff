package curriculum

import (
	"fmt"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/shuffle"
	"github.com/fulgurite/fulgurite/tasks/stream"
)

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
