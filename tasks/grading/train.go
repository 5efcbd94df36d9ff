package grading

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

// OpenTrain reads the tasks of the train split, one source after the other. parts has the
// number of tasks of each of s.TrainSources; it is nil if there is only one. Errors are
// those of Open, and an error if two sources have a task with the same id.
func (g *Graders) OpenTrain(ctx context.Context, s spec.Spec) (list []tasks.Task, parts []int, err error) {
	sources := s.TrainSources()
	lists := make([][]tasks.Task, len(sources))
	for i, source := range sources {
		if lists[i], err = g.Open(ctx, s.Tasks, s.Grader, source); err != nil {
			return nil, nil, err
		}
	}
	return Join(sources, lists)
}

// Join returns the train split of several sources, and the number of tasks of each
// source, or nil if there is only one. It is an error if two sources have a task with the
// same id.
func Join(sources []string, lists [][]tasks.Task) (list []tasks.Task, parts []int, err error) {
	from := map[string]string{}
	for i, source := range sources {
		for _, t := range lists[i] {
			if earlier, twice := from[t.ID]; twice {
				return nil, nil, fmt.Errorf("%s: id %q is there, and in %s: ids of all stages differ; give one of the tasks another", source, t.ID, earlier)
			}
		}
		for _, t := range lists[i] {
			from[t.ID] = source
		}
		list, parts = append(list, lists[i]...), append(parts, len(lists[i]))
	}
	if len(sources) == 1 {
		parts = nil
	}
	return list, parts, nil
}

// Splits compares the splits of a spec as they are read, and collects what their owner
// should know of.
type Splits struct {
	Spec spec.Spec
	// Warnings say which splits share questions, which repeat some, and which have tasks
	// without an input.
	Warnings []string

	seen []part
}

// part has the tasks of one source of a split that was added.
type part struct {
	source string
	tasks  []tasks.Task
}

// AddTrain adds the train split, as OpenTrain returns it. Its sources may share questions
// with each other, because they are stages of a curriculum.
func (s *Splits) AddTrain(list []tasks.Task, parts []int) {
	if parts == nil {
		parts = []int{len(list)}
	}
	for i, n := range parts {
		s.add("train", part{s.Spec.TrainSources()[i], list[:n]})
		list = list[n:]
	}
}

// Add adds another split, such as "gate". It is an error if the split shares questions
// with an earlier one, and both are of published data sets. Other sources that share
// questions cause a warning.
func (s *Splits) Add(name, source string, list []tasks.Task) error {
	for _, earlier := range s.seen {
		warning, err := tasks.CheckLeak(earlier.source, source, earlier.tasks, list)
		if err != nil {
			return err
		}
		if warning != "" {
			s.Warnings = append(s.Warnings, fmt.Sprintf("tasks.%s: %s", name, warning))
		}
	}
	s.add(name, part{source, list})
	return nil
}

func (s *Splits) add(name string, p part) {
	if repeats := tasks.Repeats(p.tasks); repeats.Any() {
		s.Warnings = append(s.Warnings, fmt.Sprintf("tasks.%s: %s: %s", name, p.source, repeats))
	}
	if silent := tasks.Silent(p.tasks); silent != "" {
		s.Warnings = append(s.Warnings, fmt.Sprintf("tasks.%s: %s: %s", name, p.source, silent))
	}
	s.seen = append(s.seen, p)
}
