package taskset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/textfile"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/curriculum"
	"github.com/fulgurite/fulgurite/tasks/grading"
	"github.com/fulgurite/fulgurite/trace"
)

// isSpec reports whether the argument is a spec. It is an error to give a spec together
// with other sources, or with flags whose settings the spec contains.
func (c *Show) isSpec() (bool, error) {
	at := slices.IndexFunc(c.Source, looksLikeSpec)
	switch {
	case at < 0:
		return false, nil
	case len(c.Source) > 1:
		return false, fmt.Errorf("%s is a spec: give it alone, or sources", c.Source[at])
	case c.Grader != "":
		return false, fmt.Errorf("--grader is for sources: %s says which grader grades", c.Source[at])
	case c.Reward != "":
		return false, fmt.Errorf("--reward is for sources: give tasks.harbor.reward in %s", c.Source[at])
	case c.Container != "":
		return false, fmt.Errorf("--container is for sources: give tasks.harbor.container in %s", c.Source[at])
	}
	return true, nil
}

// looksLikeSpec reports whether a source is the path of a spec: YAML, or one JSON object
// with tasks.
func looksLikeSpec(source string) bool {
	switch filepath.Ext(source) {
	case ".yaml", ".yml":
		return true
	case ".json":
	default:
		return false
	}
	data, err := textfile.Read(source)
	var fields struct {
		Tasks map[string]any `json:"tasks"`
	}
	return err == nil && json.Unmarshal(data, &fields) == nil && fields.Tasks != nil
}

// readSpec reads and checks the tasks of all splits of a spec, those of each source of the
// train split by themselves.
func readSpec(ctx context.Context, path string) ([]contents, error) {
	s, err := loadTasks(path)
	if err != nil {
		return nil, err
	}
	var out []contents
	var faults []error
	add := func(split, source string) []tasks.Task {
		if source == "" {
			return nil
		}
		one, err := read(ctx, s.Tasks, s.Grader, source)
		if err != nil {
			faults = append(faults, fmt.Errorf("tasks.%s: %w", split, err))
		}
		one.Split = split
		if one.faulty != nil {
			one.faulty = fmt.Errorf("tasks.%s: %w", split, one.faulty)
		}
		out = append(out, one)
		return one.Tasks
	}
	var train [][]tasks.Task
	for _, source := range s.TrainSources() {
		train = append(train, add(string(trace.Train), source))
	}
	if len(train) > 0 && len(faults) == 0 {
		list, parts, err := grading.Join(s.TrainSources(), train)
		if err == nil {
			_, err = curriculum.NewPool(s, list, parts)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("tasks.train: %w", err))
		}
	}
	add(string(trace.Gate), s.Tasks.Gate)
	add(string(trace.Test), s.Tasks.Test)
	return out, errors.Join(faults...)
}

// loadTasks reads a spec of which only tasks, grader and curriculum have to be right.
func loadTasks(path string) (spec.Spec, error) {
	s, err := spec.Load(path)
	if err != nil {
		return s, err
	}
	s, err = s.Complete()
	if len(s.TrainSources()) == 0 && s.Tasks.Gate == "" && s.Tasks.Test == "" {
		return s, fmt.Errorf("%s: it names no tasks: give tasks.train, tasks.gate or tasks.test", path)
	}
	var faults *spec.Faults
	if err != nil && !errors.As(err, &faults) {
		return s, err
	}
	if faults == nil {
		return s, nil
	}
	var ours []error
	for _, f := range faults.List {
		split := strings.TrimPrefix(f.Key, "tasks.")
		source, known := s.Tasks.Split(split)
		missing := known && split != f.Key && source == "" // it may be a spec that evaluates
		if !missing && (strings.HasPrefix(f.Key, "tasks") || strings.HasPrefix(f.Key, "grader") || strings.HasPrefix(f.Key, "training.curriculum")) {
			ours = append(ours, fmt.Errorf("%s: %s", path, f))
		}
	}
	return s, errors.Join(ours...)
}
