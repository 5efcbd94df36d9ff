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

// CheckLeaks returns an error if a split shares questions with a source of the train
// split, whose tasks OpenTrain has read.
func CheckLeaks(s spec.Spec, train []tasks.Task, parts []int, source string, list []tasks.Task) error {
	sources := s.TrainSources()
	if parts == nil {
		parts = []int{len(train)}
	}
	for i, n := range parts {
		if err := tasks.CheckLeak(sources[i], source, train[:n], list); err != nil {
			return err
		}
		train = train[n:]
	}
	return nil
}
