package curriculum

import (
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/shuffle"
)

// ErrNoTasks is returned when every task that a step could attempt is quarantined.
var ErrNoTasks = errors.New("no task is left")

// Input has everything on which a choice depends.
type Input struct {
	Curriculum spec.Curriculum // with defaults filled in
	Pool
	Seed  uint64
	Step  int // from 1
	Steps int // how many the run has
	// Places is how many tasks the step attempts, Reserves how many more it may need.
	Places, Reserves int
	// Finished is the last step that was certainly finished when this one began. Results
	// holds those of the steps that Window returns. Evaluations holds those on the gate
	// split.
	Finished    int
	Results     []Result
	Evaluations []record.EvaluationResult
	// Quarantined are the tasks that the step must not attempt.
	Quarantined map[int]bool
	// Before is the choice of the step before, if there is one.
	Before *record.Choice
}

// Reserves returns how many groups a step may have to replace: as many flat ones as its
// spec says, and four quarantined ones for each of its tasks. If more are quarantined,
// the run ends.
func Reserves(t spec.Training) int { return t.DynamicSampling + 4*t.TasksPerStep }

// Finished returns the last step that was certainly finished when a step began.
func Finished(t spec.Training, step int) int { return max(0, step-1-t.Lag) }

// Window returns the first and the last of the steps whose results the choice of a step
// depends on. If last is before first, there are none. before is the choice of the
// previous step, if there is one.
func Window(c spec.Curriculum, finished, step int, before *record.Choice) (first, last int) {
	switch {
	case c.Type == spec.CurriculumStages:
		stage, since := 0, 1
		if before != nil {
			stage, since = before.Stage, before.Since
		}
		until := c.Stages[stage].Until
		if until.Reward == nil {
			return 1, 0
		}
		return max(since, finished-until.Over+1), finished
	case c.Forget > 0:
		return max(1, step-len(weights(c.Forget))+1), finished
	}
	return 1, 0
}

// Choose decides which tasks a step attempts. The caller sets Run, Policy, Settings and
// At of the choice. The error wraps ErrNoTasks if all tasks are quarantined. The only
// other error is an unknown type of curriculum.
func Choose(in Input) (record.Choice, error) {
	c := chooser{Input: in, drawn: map[int]bool{}}
	c.out = record.Choice{Step: in.Step, Places: in.Places}
	switch in.Curriculum.Type {
	case spec.CurriculumBand:
		c.band()
	case spec.CurriculumEasiestFirst:
		c.easiestFirst()
	case spec.CurriculumStages:
		c.stage()
	default:
		return c.out, fmt.Errorf("curriculum %q chooses nothing", in.Curriculum.Type)
	}
	if n := len(c.out.Draws); n == 0 {
		return c.out, fmt.Errorf("step %d: %w: all %d are quarantined", in.Step, ErrNoTasks, len(in.Quarantined))
	} else if n < in.Places {
		c.note("%d tasks are left for %d places, so that some come twice", n, in.Places)
	}
	return c.out, nil
}

// chooser makes one choice.
type chooser struct {
	Input
	out   record.Choice
	drawn map[int]bool
}

// full reports whether all places and reserves are drawn.
func (c *chooser) full() bool { return len(c.out.Draws) >= c.Places+c.Reserves }

// draw adds a task, unless it was drawn already or all places are taken.
func (c *chooser) draw(task int, why record.Reason, rate *float64) {
	if c.full() || c.drawn[task] || c.Quarantined[task] {
		return
	}
	c.drawn[task] = true
	c.out.Draws = append(c.out.Draws, record.Draw{Task: task, Why: why, Rate: rate})
}

func (c *chooser) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if c.out.Note != "" {
		text = c.out.Note + "; " + text
	}
	c.out.Note = text
}

// curriculumDomain separates these orders from other uses of a seed.
const curriculumDomain = 0x63757272 // "curr"

// shuffled returns the tasks that are not quarantined, in an order that depends on the
// step.
func (c *chooser) shuffled() []int {
	key := shuffle.Key(curriculumDomain, c.Seed, uint64(c.Step))
	out := make([]int, 0, c.Tasks)
	for i := range c.Tasks {
		if task := shuffle.Index(key, c.Tasks, i); !c.Quarantined[task] {
			out = append(out, task)
		}
	}
	return out
}
