package curriculum

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

// Pool has the tasks from which a curriculum chooses.
type Pool struct {
	// Tasks is how many there are in the train split.
	Tasks int
	// Difficulty of each task, if the spec names the key of one.
	Difficulty []float64
	// Stages holds, for each stage, the indices of its tasks in order.
	Stages [][]int
}

// NewPool reads from tasks what the curriculum of a spec needs to know about them. The
// tasks are those of s.TrainSources, one source after the other. parts holds how many
// tasks each source has; nil means that there is one source. Errors name the key of the
// spec and the task.
func NewPool(s spec.Spec, list []tasks.Task, parts []int) (Pool, error) {
	p := Pool{Tasks: len(list)}
	if !s.Training.Chooses() {
		return p, nil
	}
	c := s.Training.Curriculum
	if n := s.Training.TasksPerStep; len(list) < n {
		return p, fmt.Errorf("training.tasks_per_step: %d tasks a step, and tasks.train has %d: a curriculum chooses no task twice in a step; give fewer", n, len(list))
	}
	if c.Difficulty != "" {
		for i, t := range list {
			d, ok := number(t.Metadata[c.Difficulty])
			if !ok {
				return p, fmt.Errorf("training.curriculum.difficulty: task %s (number %d) has no number under metadata.%s; give it one, or leave the key out to go by recorded pass rates", t.ID, i+1, c.Difficulty)
			}
			p.Difficulty = append(p.Difficulty, d)
		}
	}
	for i, stage := range c.Stages {
		members := membersOf(s, stage, list, parts)
		if n := s.Training.TasksPerStep; len(members) < n {
			return p, fmt.Errorf("training.curriculum.stages[%d]: %d tasks belong to stage %s, and training.tasks_per_step is %d: no task comes twice in a step; give fewer tasks a step, or another filter",
				i, len(members), c.Title(i), n)
		}
		p.Stages = append(p.Stages, members)
	}
	return p, nil
}

// membersOf returns the tasks of a stage.
func membersOf(s spec.Spec, stage spec.Stage, list []tasks.Task, parts []int) []int {
	first, end := 0, len(list)
	if len(parts) > 0 {
		source := stage.Tasks
		if source == "" {
			source = s.Tasks.Train
		}
		at := slices.Index(s.TrainSources(), source)
		for _, n := range parts[:at] {
			first += n
		}
		end = first + parts[at]
	}
	var out []int
	for i := first; i < end; i++ {
		if stage.Where == nil || holds(*stage.Where, list[i].Metadata[stage.Where.Field]) {
			out = append(out, i)
		}
	}
	return out
}

// holds reports whether a value of a task's metadata satisfies a filter.
func holds(w spec.Where, value any) bool {
	if len(w.Values) > 0 {
		switch value.(type) {
		case string, bool, json.Number, float64, int:
			return slices.Contains(w.Values, fmt.Sprint(value))
		}
		return false
	}
	v, ok := number(value)
	return ok && (w.AtLeast == nil || v >= *w.AtLeast) && (w.AtMost == nil || v <= *w.AtMost)
}

// number returns a value of a task's metadata as a number. It reports false unless the
// value is a finite number.
func number(value any) (float64, bool) {
	v, err := strconv.ParseFloat(fmt.Sprint(value), 64)
	switch value.(type) {
	case json.Number, float64, int:
		return v, err == nil && !math.IsInf(v, 0) && !math.IsNaN(v)
	}
	return 0, false
}
