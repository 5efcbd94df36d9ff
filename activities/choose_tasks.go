package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/curriculum"
)

// ChooseTasksInput asks which tasks a step attempts under a curriculum. It asks for the
// places First to First+Count-1 of the step's choice. The places of the batch come before
// those of the reserves.
type ChooseTasksInput struct {
	Run    string `json:"run"`
	Policy string `json:"policy"`
	Step   int    `json:"step"`
	First  int    `json:"first"`
	Count  int    `json:"count"`
	// Set has the keys of the spec that were changed during the run, with their values.
	Set map[string]float64 `json:"set,omitempty"`
}

// ChooseTasksResult has the tasks by their index in the train split.
type ChooseTasksResult struct {
	Tasks []int `json:"tasks"`
	// Text describes in a sentence what the step's curriculum chose.
	Text    string             `json:"text"`
	Metrics map[string]float64 `json:"metrics"`
}

// ChooseTasks decides which tasks a step attempts, from the results that were on record
// when it began, and records the choice with the reason for each task. Asked again, it
// returns the recorded choice, whatever was set or attempted since.
func (c *Coordinator) ChooseTasks(ctx context.Context, in ChooseTasksInput) (_ ChooseTasksResult, err error) {
	defer temporalError(&err)
	choice, err := c.Ledger.Choice(ctx, in.Run, in.Policy, in.Step)
	if errors.Is(err, record.ErrNotFound) {
		choice, err = c.choose(ctx, in)
	}
	if err != nil {
		return ChooseTasksResult{}, fmt.Errorf("choose the tasks of step %d of %s: %w", in.Step, in.Run, err)
	}
	out := ChooseTasksResult{Text: choice.String(), Metrics: choice.Metrics()}
	for k := in.First; k < in.First+in.Count; k++ {
		out.Tasks = append(out.Tasks, choice.Place(k).Task)
	}
	return out, nil
}

// choose makes the choice of a step and returns the recorded one.
func (c *Coordinator) choose(ctx context.Context, in ChooseTasksInput) (record.Choice, error) {
	run, err := readRun(ctx, in.Run, c.Runs, c.Blobs)
	if err != nil {
		return record.Choice{}, err
	}
	s, err := run.spec.Set(in.Set)
	if err != nil {
		return record.Choice{}, invalid(err)
	}
	evidence := curriculum.Evidence{Spec: s, Tasks: run.tasks[record.Train], Parts: run.run.Splits[record.Train].Parts}
	if in.Step > 1 {
		before, err := c.Ledger.Choice(ctx, in.Run, in.Policy, in.Step-1)
		if err != nil {
			return record.Choice{}, err
		}
		evidence.Before = &before
	}
	settings := *s.Training.Curriculum
	finished := curriculum.Finished(s.Training, in.Step)
	if first, last := curriculum.Window(settings, finished, in.Step, evidence.Before); first <= last {
		if evidence.Scores, err = c.Ledger.StepScores(ctx, in.Run, in.Policy, first, last); err != nil {
			return record.Choice{}, err
		}
	}
	if evidence.Quarantines, err = c.Ledger.Quarantines(ctx, in.Run, in.Policy); err != nil {
		return record.Choice{}, err
	}
	if settings.Type == spec.CurriculumStages {
		if evidence.Evaluations, err = c.Ledger.Evaluations(ctx, in.Run); err != nil {
			return record.Choice{}, err
		}
	}
	choice, err := evidence.Choose(in.Step)
	if err != nil {
		return record.Choice{}, invalid(err)
	}
	choice.Run, choice.Policy = in.Run, in.Policy
	if choice.Settings, err = json.Marshal(settings); err != nil {
		return record.Choice{}, fmt.Errorf("encode the curriculum: %w", err)
	}
	return c.Ledger.PutChoice(ctx, choice)
}
