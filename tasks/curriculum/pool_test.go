package curriculum_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/curriculum"
)

// listed returns n tasks with difficulties from 0 on.
func listed(n int) []tasks.Task {
	list := make([]tasks.Task, n)
	for i := range list {
		list[i] = tasks.Task{ID: fmt.Sprintf("t%d", i), Metadata: map[string]any{"hard": json.Number(fmt.Sprint(i)), "kind": []string{"sum", "product"}[i%2], "new": i%2 == 0}}
	}
	return list
}

func of(c spec.Curriculum) spec.Spec {
	return spec.Spec{
		Agent: spec.Agent{Func: "f"}, Grader: spec.Grader{Type: "exact"}, Tasks: spec.Tasks{Train: "a.jsonl"},
		Training: spec.Training{Steps: 10, TasksPerStep: 2, Curriculum: &c},
	}.WithDefaults()
}

func TestStagesAreSourcesAndFilters(t *testing.T) {
	t.Parallel()
	one, three := 1.0, 3.0
	s := of(spec.Curriculum{Type: spec.CurriculumStages, Stages: []spec.Stage{
		{Where: &spec.Where{Field: "kind", Values: []string{"product"}}, Until: spec.Until{Steps: 1}},
		{Tasks: "b.jsonl", Until: spec.Until{Steps: 1}},
		{Tasks: "b.jsonl", Where: &spec.Where{Field: "hard", AtMost: &three}, Until: spec.Until{Steps: 1}},
		{Where: &spec.Where{Field: "hard", AtLeast: &one, AtMost: &three}, Until: spec.Until{Steps: 1}},
		{Where: &spec.Where{Field: "new", Values: []string{"true"}}},
	}})
	require.Equal(t, []string{"a.jsonl", "b.jsonl"}, s.TrainSources())
	p, err := curriculum.NewPool(s, append(listed(4), listed(5)...), []int{4, 5})
	require.NoError(t, err)
	require.Equal(t, [][]int{{1, 3}, {4, 5, 6, 7, 8}, {4, 5, 6, 7}, {1, 2, 3}, {0, 2}}, p.Stages)
}

func TestAPoolThatCannotServeIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		curriculum spec.Curriculum
		tasks      int
		want       string
	}{
		"few tasks":     {spec.Curriculum{Type: spec.CurriculumBand}, 1, "training.tasks_per_step: 2 tasks a step, and tasks.train has 1"},
		"no difficulty": {spec.Curriculum{Type: spec.CurriculumEasiestFirst, Difficulty: "level"}, 3, "training.curriculum.difficulty: task t0 (number 1) has no number under metadata.level"},
		"text":          {spec.Curriculum{Type: spec.CurriculumEasiestFirst, Difficulty: "kind"}, 3, "task t0 (number 1) has no number under metadata.kind"},
		"empty stage": {spec.Curriculum{Type: spec.CurriculumStages, Stages: []spec.Stage{
			{Until: spec.Until{Steps: 1}}, {Name: "last", Where: &spec.Where{Field: "kind", Values: []string{"root"}}},
		}}, 4, "training.curriculum.stages[1]: 0 tasks belong to stage last, and training.tasks_per_step is 2"},
	} {
		_, err := curriculum.NewPool(of(c.curriculum), listed(c.tasks), nil)
		require.ErrorContains(t, err, c.want, name)
	}
}

// Results of steps that were not certainly finished must not matter, nor quarantined
// tasks.
func TestAChoiceLooksAtFinishedStepsAlone(t *testing.T) {
	t.Parallel()
	s := of(spec.Curriculum{Type: spec.CurriculumBand})
	s.Training.Lag = 1
	score := func(step, task int, reward float64) record.StepScore {
		return record.StepScore{Kind: record.Train, Step: step, TaskID: fmt.Sprintf("t%d", task), Score: record.Score{Task: (step-1)*2 + task%2, Reward: reward}}
	}
	e := curriculum.Evidence{Spec: s, Tasks: listed(9), Scores: []record.StepScore{score(1, 0, 1), score(1, 1, 0), score(2, 2, 1), score(2, 3, 0)}}
	want, err := e.Choose(4)
	require.NoError(t, err)
	require.Equal(t, 4, want.Known)
	e.Scores = append(e.Scores, score(3, 4, 1), score(3, 5, 0), score(4, 6, 1))
	e.Quarantines = []record.Quarantine{{Step: 3, Kind: record.Train, Task: 4, Index: 4}}
	got, err := e.Choose(4)
	require.NoError(t, err)
	require.Equal(t, want, got)

	e.Quarantines = append(e.Quarantines, record.Quarantine{Step: 2, Kind: record.Train, Task: 2, Index: 2})
	got, err = e.Choose(4)
	require.NoError(t, err)
	require.Equal(t, []int{3, 8}, []int{got.Known, got.Left}, "a quarantined group came to nothing")
}
