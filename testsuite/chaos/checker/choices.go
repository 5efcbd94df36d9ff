package checker

import (
	"fmt"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/curriculum"
	"github.com/fulgurite/fulgurite/trace"
)

// Choice holds the tasks that the store says a step was to attempt: first those of its
// batch, then reserves.
type Choice struct {
	Step  int
	Tasks []int // indices in the train split
	Stage int   // from 0
	Since int   // first step of the stage
}

// chosen returns the task that a group should have under a curriculum.
func chosen(choices map[int]Choice, r Records, g Issued) (int, bool) {
	place := g.Task - (g.Step-1)*r.TasksPer
	if g.Kind == reserve {
		place = r.TasksPer + g.Task
	}
	c, ok := choices[g.Step]
	if !ok || place < 0 || len(c.Tasks) == 0 {
		return 0, false
	}
	return c.Tasks[place%len(c.Tasks)], true
}

// checkChoices compares the recorded choices of a curriculum with those that follow from
// the rewards in Temporal's history. The function that chooses is the product's, but the
// evidence that it gets here is not.
func checkChoices(f *Findings, e Evidence) {
	list, err := tasks.Open(e.Records.Chosen.Tasks.Train)
	if err != nil {
		f.wrong("the tasks can't be read: %v", err)
		return
	}
	evidence := curriculum.Evidence{Spec: *e.Records.Chosen, Tasks: list}
	for _, g := range e.History.Issued {
		if g.Index < 0 || g.Index >= len(list) {
			f.wrong("%s-%d/%d is task %d of %d", g.Kind, g.Step, g.Task, g.Index, len(list))
			return
		}
		if g.Quarantine != "" {
			evidence.Quarantines = append(evidence.Quarantines, record.Quarantine{Step: g.Step, Kind: trace.Kind(g.Kind), Task: g.Task, Index: g.Index})
			continue
		}
		for sample, reward := range g.Rewards {
			evidence.Scores = append(evidence.Scores, record.StepScore{
				Kind: trace.Kind(g.Kind), Step: g.Step, TaskID: list[g.Index].ID, Score: record.Score{Task: g.Task, Sample: sample, Reward: reward},
			})
		}
	}
	for _, of := range e.Records.Evaluations {
		evidence.Evaluations = append(evidence.Evaluations, record.Evaluation{EvaluationResult: record.EvaluationResult{Kind: trace.Kind(of.Kind), Version: of.Version, Mean: of.Mean}})
	}
	for i, made := range e.Records.Choices {
		if made.Step != i+1 {
			f.wrong("the choice of step %d is not on record", i+1)
			return
		}
		want, err := evidence.Choose(made.Step)
		if err != nil {
			f.wrong("the choice of step %d: %v", made.Step, err)
			return
		}
		if difference := differs(made, want); difference != "" {
			f.wrong("the choice of step %d: %s", made.Step, difference)
		}
		evidence.Before = &record.Choice{Step: made.Step, Stage: made.Stage, Since: made.Since}
	}
	if n := len(e.Records.Choices); n < e.Records.Steps {
		f.wrong("%d choices are on record for %d steps", n, e.Records.Steps)
	}
}

func differs(made Choice, want record.Choice) string {
	if made.Stage != want.Stage || made.Since != want.Since || len(made.Tasks) != len(want.Draws) {
		return fmt.Sprintf("%d tasks of stage %d since step %d, the history gives %d of stage %d since step %d",
			len(made.Tasks), made.Stage, made.Since, len(want.Draws), want.Stage, want.Since)
	}
	drawn := map[int]bool{}
	for i, task := range made.Tasks {
		if drawn[task] {
			return fmt.Sprintf("task %d is drawn twice", task)
		}
		drawn[task] = true
		if task != want.Draws[i].Task {
			return fmt.Sprintf("place %d is task %d, the history gives task %d", i, task, want.Draws[i].Task)
		}
	}
	return ""
}
