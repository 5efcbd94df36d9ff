package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/curriculum"
	"github.com/fulgurite/fulgurite/tasks/stream"
	"github.com/fulgurite/fulgurite/trace"
)

// taskOf returns the task that the streams, or a curriculum's choice, have for a prompt
// of a finished step. If a choice names a task that does not exist, that is a fault.
func (l *ledger) taskOf(p prompt) tasks.Task {
	var index int
	switch {
	case l.spec.Training.Chooses():
		index = l.choices[p.step].DrawOf(p.kind, p.task).Task
	case p.kind == trace.Reserve:
		index = stream.Reserve(l.spec.Seed, len(l.tasks), p.step, p.task)
	default:
		index, _ = stream.At(l.spec.Seed, len(l.tasks), p.task)
	}
	if index < 0 || index >= len(l.tasks) {
		l.fault("%s is task %d of the train split by the choice of its step, and there are %d", p, index, len(l.tasks))
		return tasks.Task{}
	}
	return l.tasks[index]
}

// checkChoices makes the choice of each finished step again, from the results on record,
// and reports the choices that differ.
func (l *ledger) checkChoices() {
	if !l.spec.Training.Chooses() {
		return
	}
	scores := l.scores()
	for _, s := range l.steps {
		if made, ok := l.choices[s.Step]; !ok {
			l.fault("step %d is finished, and which tasks it was to attempt is not on record", s.Step)
		} else if err := l.checkChoice(made, scores); err != nil {
			l.fault("the choice of step %d: %v", s.Step, err)
		}
	}
}

func (l *ledger) checkChoice(made record.Choice, scores []record.StepScore) error {
	e := curriculum.Evidence{Spec: l.spec, Tasks: l.tasks, Parts: l.run.Splits[trace.Train].Parts, Quarantines: l.quarantines, Evaluations: l.evaluations}
	var settings spec.Curriculum
	if err := json.Unmarshal(made.Settings, &settings); err != nil {
		return fmt.Errorf("its settings can't be read: %w", err)
	}
	if settings.Type != l.spec.Training.Curriculum.Type {
		return fmt.Errorf("it is of type %q, the spec says %q", settings.Type, l.spec.Training.Curriculum.Type)
	}
	e.Spec.Training.Curriculum = &settings
	if before, ok := l.choices[made.Step-1]; ok {
		e.Before = &before
	}
	first, last := curriculum.Window(settings, curriculum.Finished(e.Spec.Training, made.Step), made.Step, e.Before)
	e.Scores = scoresBetween(scores, first, last)
	again, err := e.Choose(made.Step)
	if err != nil {
		return err
	}
	if made.Places != again.Places || len(made.Draws) != len(again.Draws) || made.Stage != again.Stage {
		return fmt.Errorf("%d tasks of stage %d for %d places are on record, the results give %d of stage %d for %d",
			len(made.Draws), made.Stage+1, made.Places, len(again.Draws), again.Stage+1, again.Places)
	}
	for i, d := range made.Draws {
		if want := again.Draws[i]; d.Task != want.Task || d.Why != want.Why {
			return fmt.Errorf("place %d is task %d (%s), but by the results it should be task %d (%s)", i, d.Task, d.Why, want.Task, want.Why)
		}
	}
	return nil
}

// scores returns the rewards of all groups by step: for each sample the reward of the
// last attempt that got one.
func (l *ledger) scores() []record.StepScore {
	var out []record.StepScore
	for p, samples := range l.rewards {
		for sample, reward := range samples {
			out = append(out, record.StepScore{Kind: p.kind, Step: p.step, TaskID: l.taskIDs[p], Score: record.Score{Task: p.task, Sample: sample, Reward: reward}})
		}
	}
	slices.SortFunc(out, func(a, b record.StepScore) int { return cmp.Compare(a.Step, b.Step) })
	return out
}

// scoresBetween returns the scores of steps first to last. scores must be sorted by step.
func scoresBetween(scores []record.StepScore, first, last int) []record.StepScore {
	at := func(step int) int {
		i, _ := slices.BinarySearchFunc(scores, step, func(s record.StepScore, step int) int { return cmp.Compare(s.Step, step) })
		return i
	}
	if first > last {
		return nil
	}
	return scores[at(first):at(last+1)]
}
