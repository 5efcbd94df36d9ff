package grading

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/curriculum"
)

// Splits are the tasks that a spec names.
type Splits struct {
	// Tasks has a list for each split that is named: train, gate, test, validation.
	Tasks map[record.Kind][]tasks.Task
	// Parts has the number of tasks of each source of the train split. It is nil if there
	// is only one.
	Parts []int
	// Pool is what the curriculum knows of the train split.
	Pool curriculum.Pool
	// Warnings say which splits share questions, which repeat some, and which have tasks
	// without an input.
	Warnings []string

	spec spec.Spec
	seen []part
}

// part has the tasks of one source of a split that was read.
type part struct {
	split  record.Kind
	source string
	tasks  []tasks.Task
}

// ReadSplits reads the tasks of all splits of a spec, checks them for its grader, its
// curriculum and its agent, and compares the splits with each other. The spec is complete
// and checked. The error has the faults of all splits, each behind the key of its split,
// and wraps sqlmatch.ErrDatabase if a database could not be read. Splits without faults
// are returned all the same.
func ReadSplits(ctx context.Context, s spec.Spec) (Splits, error) {
	out := Splits{Tasks: map[record.Kind][]tasks.Task{}, spec: s}
	var graders Graders
	defer graders.Close()
	var faults []error
	for _, kind := range []record.Kind{record.Train, record.Gate, record.Test, record.Validation} {
		source, _ := s.Tasks.Split(string(kind))
		if source == "" {
			continue
		}
		var list []tasks.Task
		var err error
		if kind == record.Train {
			list, err = out.readTrain(ctx, &graders)
		} else if list, err = graders.Open(ctx, s.Tasks, s.Grader, source); err == nil {
			err = out.add(kind, source, list)
		}
		if err == nil {
			err = checkSizes(s.Agent, list)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("tasks.%s: %w", kind, err))
		}
		out.Tasks[kind] = list
	}
	return out, errors.Join(faults...)
}

func (s *Splits) readTrain(ctx context.Context, graders *Graders) (list []tasks.Task, err error) {
	if list, s.Parts, err = graders.OpenTrain(ctx, s.spec); err != nil {
		return nil, err
	}
	parts := s.Parts
	if parts == nil {
		parts = []int{len(list)}
	}
	// The sources may share questions, because they are stages of a curriculum.
	for i, rest := 0, list; i < len(parts); i, rest = i+1, rest[parts[i]:] {
		s.warn(part{record.Train, s.spec.TrainSources()[i], rest[:parts[i]]})
	}
	s.Pool, err = curriculum.NewPool(s.spec, list, s.Parts)
	return list, err
}

// add compares a split with those before it. It is an error if they share questions and
// both are of published data sets, or if a search uses both. Other sources that share
// questions cause a warning.
func (s *Splits) add(split record.Kind, source string, list []tasks.Task) error {
	for _, earlier := range s.seen {
		warning, err := tasks.CheckLeak(earlier.source, source, earlier.tasks, list)
		switch {
		case err != nil:
			return err
		case warning == "":
		case s.spec.Optimizer != nil && split != record.Test && earlier.split != record.Test:
			return fmt.Errorf("a reflector reads tasks, so texts may hold what the splits share: %s", warning)
		default:
			s.Warnings = append(s.Warnings, fmt.Sprintf("tasks.%s: %s", split, warning))
		}
	}
	s.warn(part{split, source, list})
	return nil
}

func (s *Splits) warn(p part) {
	name := p.split
	if repeats := tasks.Repeats(p.tasks); repeats.Any() {
		s.Warnings = append(s.Warnings, fmt.Sprintf("tasks.%s: %s: %s", name, p.source, repeats))
	}
	if silent := tasks.Silent(p.tasks); silent != "" {
		s.Warnings = append(s.Warnings, fmt.Sprintf("tasks.%s: %s: %s", name, p.source, silent))
	}
	s.seen = append(s.seen, p)
}

// largestTask limits the size, in bytes of JSON, of a task that goes to an agent through
// Temporal, which refuses payloads of more than 2 MiB.
const largestTask = 1 << 20

// checkSizes reports a task that is too large for an agent that is a workflow or an
// activity.
func checkSizes(a spec.Agent, list []tasks.Task) error {
	if a.Temporal == nil {
		return nil
	}
	for _, t := range list {
		t.Answer = "" // the agent does not get it
		data, err := json.Marshal(t)
		if err != nil {
			return fmt.Errorf("task %s: %w", t.ID, err)
		}
		if len(data) > largestTask {
			return fmt.Errorf("task %s has %d bytes: agent.temporal takes at most %d through Temporal; give the agent a path or an address in its place", t.ID, len(data), largestTask)
		}
	}
	return nil
}

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
