package curriculum_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/curriculum"
)

// staged returns the input of a run with two stages, the first of which has tasks 0 to 9.
func staged(until spec.Until) curriculum.Input {
	first, second := make([]int, 10), make([]int, 6)
	for i := range first {
		first[i] = i
	}
	for i := range second {
		second[i] = 10 + i
	}
	return curriculum.Input{
		Curriculum: spec.Curriculum{Type: spec.CurriculumStages, Stages: []spec.Stage{{Name: "first", Until: until}, {Name: "second"}}},
		Pool:       curriculum.Pool{Tasks: 16, Stages: [][]int{first, second}}, Seed: 5, Places: 4, Reserves: 3, Steps: 100,
	}
}

// stagesOf returns the stages of the given number of steps, from step 1 on, each chosen
// after the previous one. reward returns the mean reward of a step.
func stagesOf(t *testing.T, in curriculum.Input, lag, steps int, reward func(step int) float64) (stages []int, last record.Choice) {
	t.Helper()
	for step := 1; step <= steps; step++ {
		in.Step, in.Finished, in.Results = step, max(0, step-1-lag), nil
		for s := 1; s <= in.Finished; s++ {
			in.Results = append(in.Results, curriculum.Result{Step: s, Samples: 4, Sum: 4 * reward(s)})
		}
		last = choose(t, in)
		if last.Moved != "" {
			t.Log(last.Moved)
		}
		stages = append(stages, last.Stage+1)
		in.Before = &last
	}
	return stages, last
}

func never(int) float64 { return 0 }

func TestAStageEndsAfterItsSteps(t *testing.T) {
	t.Parallel()
	for lag := range 3 {
		stages, last := stagesOf(t, staged(spec.Until{Steps: 3}), lag, 5, never)
		require.Equal(t, []int{1, 1, 1, 2, 2}, stages, "whatever the lag")
		require.Equal(t, 4, last.Since)
	}
}

func TestAStageEndsAtItsMeanReward(t *testing.T) {
	t.Parallel()
	half := 0.5
	rising := func(step int) float64 { return float64(step) / 10 }
	stages, _ := stagesOf(t, staged(spec.Until{Reward: &half, Over: 3}), 0, 9, rising)
	require.Equal(t, []int{1, 1, 1, 1, 1, 1, 2, 2, 2}, stages, "steps 4, 5 and 6 have a mean of 0.5")
	stages, _ = stagesOf(t, staged(spec.Until{Reward: &half, Over: 3}), 2, 9, rising)
	require.Equal(t, []int{1, 1, 1, 1, 1, 1, 1, 1, 2}, stages, "seen two steps later with a lag of 2")
	stages, _ = stagesOf(t, staged(spec.Until{Reward: &half, Over: 3, Steps: 2}), 0, 4, rising)
	require.Equal(t, []int{1, 1, 2, 2}, stages, "the first condition that holds")
}

func TestRoundingIsNoFailure(t *testing.T) {
	t.Parallel()
	const almost = 0.9999999999999999 // the sum of a rubric's weights
	scores := []record.StepScore{{TaskID: "a", Reward: almost}, {TaskID: "a", Sample: 1, Reward: 0.99}}
	results := curriculum.Results(scores, map[string]int{"a": 0}, nil, 1)
	require.Len(t, results, 1)
	require.Equal(t, 1, results[0].Passed)
	one := 1.0
	stages, _ := stagesOf(t, staged(spec.Until{Reward: &one, Over: 1}), 0, 2, func(int) float64 { return almost })
	require.Equal(t, []int{1, 2}, stages)
	in := staged(spec.Until{Evaluation: &one})
	in.Evaluations = []record.EvaluationResult{{Version: 1, Mean: almost}}
	stages, _ = stagesOf(t, in, 0, 2, never)
	require.Equal(t, []int{1, 2}, stages)
}

func TestAStageEndsAtAnEvaluation(t *testing.T) {
	t.Parallel()
	want := 0.7
	in := staged(spec.Until{Evaluation: &want})
	in.Evaluations = []record.EvaluationResult{{Version: 0, Mean: 0.9}, {Version: 2, Mean: 0.6}, {Version: 4, Mean: 0.75}}
	stages, last := stagesOf(t, in, 1, 7, never)
	require.Equal(t, []int{1, 1, 1, 1, 1, 2, 2}, stages, "version 0 is from before the stage")
	require.Equal(t, "second", last.Title)
	in.Evaluations = append(in.Evaluations, record.EvaluationResult{Version: 5, Mean: 0.1})
	in.Step, in.Finished, in.Before = 6, 5, &record.Choice{Stage: 0, Since: 1}
	require.Zero(t, choose(t, in).Stage, "the newest decides")
}

func TestAStageIsPassedThroughEpochAfterEpoch(t *testing.T) {
	t.Parallel()
	in := staged(spec.Until{Steps: 100})
	in.Places = 5
	counts := map[int]int{}
	for step := 1; step <= 6; step++ {
		in.Step, in.Before = step, &record.Choice{Since: 1}
		c := choose(t, in)
		for k := range c.Places {
			counts[c.Place(k).Task]++
		}
		for _, d := range c.Draws {
			require.Less(t, d.Task, 10, "of the stage alone, reserves too")
		}
		if step%2 == 0 {
			for task := range 10 {
				require.Equal(t, step/2, counts[task], "each task once an epoch")
			}
		}
	}
}

func TestAStageOfQuarantinedTasksSaysThatSomeComeTwice(t *testing.T) {
	t.Parallel()
	in := staged(spec.Until{Steps: 100})
	in.Step, in.Quarantined = 1, map[int]bool{}
	for task := range 7 {
		in.Quarantined[task] = true
	}
	c := choose(t, in)
	require.Equal(t, []int{7, 8, 9}, slices.Sorted(slices.Values([]int{c.Place(0).Task, c.Place(1).Task, c.Place(2).Task})))
	require.Equal(t, c.Place(0), c.Place(3))
	require.Equal(t, "3 tasks are left for 4 places, so that some come twice", c.Note)
	for task := range 16 {
		in.Quarantined[task] = true
	}
	_, err := curriculum.Choose(in)
	require.ErrorIs(t, err, curriculum.ErrNoTasks)
}
