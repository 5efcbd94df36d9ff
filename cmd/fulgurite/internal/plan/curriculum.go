package plan

import (
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/spec"
)

// curriculumOf describes how a spec's curriculum chooses tasks. It returns "" if the spec
// has none.
func (p Plan) curriculumOf() string {
	if !p.Spec.Training.Chooses() {
		return ""
	}
	c, n := *p.Spec.Training.Curriculum, p.Spec.Training.TasksPerStep
	switch c.Type {
	case spec.CurriculumBand:
		return fmt.Sprintf("band: tasks with an estimated pass rate between %g and %g (a pass is a reward of at least %g); %g of %d a step are explored; results lose %g of their weight a step",
			*c.Low, c.High, p.Spec.Evaluation.SuccessThreshold(), *c.Explore*float64(n), n, c.Forget)
	case spec.CurriculumEasiestFirst:
		by, steps := "metadata."+c.Difficulty, c.Steps
		if c.Difficulty == "" {
			by = fmt.Sprintf("recorded pass rate (results lose %g of their weight a step)", c.Forget)
		}
		if steps == 0 {
			steps = max(1, p.Steps/2)
		}
		return fmt.Sprintf("easiest_first by %s: from the easiest %g of the tasks in step 1 to all in step %d", by, c.Start, steps+1)
	}
	var stages []string
	for i, stage := range c.Stages {
		text := fmt.Sprintf("%s (%s", c.Title(i), readable.Count(len(p.pool.Stages[i]), "task"))
		if until := untilOf(stage.Until); until != "" {
			text += " until " + until
		}
		stages = append(stages, text+")")
	}
	return "stages: " + strings.Join(stages, ", then ")
}

func untilOf(u spec.Until) string {
	var conditions []string
	if u.Steps > 0 {
		conditions = append(conditions, readable.Count(u.Steps, "step"))
	}
	if u.Reward != nil {
		conditions = append(conditions, fmt.Sprintf("a mean reward of %g over %s", *u.Reward, readable.Count(u.Over, "step")))
	}
	if u.Evaluation != nil {
		conditions = append(conditions, fmt.Sprintf("a mean of %g on the gate split", *u.Evaluation))
	}
	return strings.Join(conditions, " or ")
}
