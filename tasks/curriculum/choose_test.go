package curriculum_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/curriculum"
)

// anyInput returns an input for any type of curriculum.
func anyInput(t *rapid.T) curriculum.Input {
	n := rapid.IntRange(1, 60).Draw(t, "tasks")
	in := curriculum.Input{
		Pool: curriculum.Pool{Tasks: n}, Seed: rapid.Uint64().Draw(t, "seed"), Step: rapid.IntRange(1, 50).Draw(t, "step"), Steps: 60,
		Places: rapid.IntRange(1, 12).Draw(t, "places"), Reserves: rapid.IntRange(0, 20).Draw(t, "reserves"), Quarantined: map[int]bool{},
	}
	in.Finished = max(0, in.Step-1-rapid.IntRange(0, 2).Draw(t, "lag"))
	for range rapid.IntRange(0, n-1).Draw(t, "quarantined") {
		in.Quarantined[rapid.IntRange(0, n-1).Draw(t, "out")] = true
	}
	for step := 1; step <= in.Finished; step++ {
		for range rapid.IntRange(0, 4).Draw(t, "groups") {
			samples := rapid.IntRange(1, 8).Draw(t, "samples")
			passed := rapid.IntRange(0, samples).Draw(t, "passed")
			in.Results = append(in.Results, curriculum.Result{Step: step, Task: rapid.IntRange(0, n-1).Draw(t, "task"), Samples: samples, Passed: passed, Sum: float64(passed)})
		}
	}
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		low, explore := rapid.Float64Range(0, 0.4).Draw(t, "low"), rapid.Float64Range(0, 1).Draw(t, "explore")
		in.Curriculum = spec.Curriculum{Type: spec.CurriculumBand, Low: &low, High: rapid.Float64Range(0.5, 1).Draw(t, "high"), Explore: &explore, Forget: 0.1}
	case 1:
		in.Curriculum = spec.Curriculum{Type: spec.CurriculumEasiestFirst, Start: 0.2, Forget: 0.1}
	case 2:
		in.Curriculum = spec.Curriculum{Type: spec.CurriculumEasiestFirst, Start: 0.2, Difficulty: "d", Steps: 10}
		for range n {
			in.Difficulty = append(in.Difficulty, float64(rapid.IntRange(0, 3).Draw(t, "difficulty")))
		}
	case 3:
		reward := 0.5
		in.Curriculum = spec.Curriculum{Type: spec.CurriculumStages, Stages: []spec.Stage{{Until: spec.Until{Reward: &reward, Over: 2}}, {}}}
		first := make([]int, rapid.IntRange(1, n).Draw(t, "first"))
		for i := range first {
			first[i] = n - 1 - i
		}
		in.Stages = [][]int{first, {0}}
		if in.Step > 1 {
			in.Before = &record.Choice{Step: in.Step - 1, Stage: rapid.IntRange(0, 1).Draw(t, "stage"), Since: rapid.IntRange(1, in.Step-1).Draw(t, "since")}
		}
	}
	return in
}

func TestNoTaskIsDrawnTwiceInAStepAndNoneThatIsQuarantined(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput(t)
		c, err := curriculum.Choose(in)
		if err != nil {
			require.ErrorIs(t, err, curriculum.ErrNoTasks)
			require.Zero(t, c.Left)
			return
		}
		drawn := map[int]bool{}
		for _, d := range c.Draws {
			require.False(t, drawn[d.Task] || in.Quarantined[d.Task], "task %d", d.Task)
			require.True(t, d.Task >= 0 && d.Task < in.Tasks)
			drawn[d.Task] = true
		}
		require.Len(t, c.Draws, min(c.Left, in.Places+in.Reserves), "as many as there are")
		if len(c.Draws) < in.Places {
			require.Contains(t, c.Note, "some come twice")
		}
	})
}

func TestAChoiceDependsOnItsInputAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput(t)
		want, _ := curriculum.Choose(in)
		again, _ := curriculum.Choose(in)
		require.Empty(t, cmp.Diff(want, again))
		if in.Curriculum.Type == spec.CurriculumStages {
			return // it sums rewards in the order of steps
		}
		slices.Reverse(in.Results)
		other, _ := curriculum.Choose(in)
		for i := range want.Draws {
			require.Equal(t, want.Draws[i].Task, other.Draws[i].Task, "results may come in any order")
		}
	})
}

// band returns the input of a step with a band over n tasks.
func band(n, places, step int, explore float64, results ...curriculum.Result) curriculum.Input {
	low := 0.1
	return curriculum.Input{
		Curriculum: spec.Curriculum{Type: spec.CurriculumBand, Low: &low, High: 0.9, Explore: &explore, Forget: 0.03},
		Pool:       curriculum.Pool{Tasks: n}, Seed: 1, Step: step, Places: places, Finished: step - 1, Results: results, Quarantined: map[int]bool{},
	}
}

func choose(t require.TestingT, in curriculum.Input) record.Choice {
	c, err := curriculum.Choose(in)
	require.NoError(t, err)
	return c
}

// whys counts the draws of the batch by reason.
func whys(c record.Choice) map[record.Reason]int {
	out := map[record.Reason]int{}
	for k := range c.Places {
		out[c.Place(k).Why]++
	}
	return out
}

func TestTheBandIsWhatIsDrawn(t *testing.T) {
	t.Parallel()
	var results []curriculum.Result
	for task := range 30 { // ten that never succeed, ten in the band, ten solved
		results = append(results, curriculum.Result{Step: 9, Task: task, Samples: 8, Passed: task / 10 * 4})
	}
	c := choose(t, band(40, 10, 10, 0.2, results...))
	require.Equal(t, map[record.Reason]int{record.ReasonBand: 8, record.ReasonExplored: 2}, whys(c))
	require.Equal(t, []int{30, 10, 40}, []int{c.Known, c.InBand, c.Left})
	for _, d := range c.Draws[:10] {
		if d.Why == record.ReasonBand {
			require.Equal(t, 1, d.Task/10)
			require.InDelta(t, 0.5, *d.Rate, 1e-12)
		} else {
			require.Nil(t, d.Rate, "tasks that nobody attempted come first")
		}
	}
	require.Empty(t, c.Note)
}

func TestATooNarrowBandIsWidenedAndSaysSo(t *testing.T) {
	t.Parallel()
	results := []curriculum.Result{
		{Step: 1, Task: 0, Samples: 8, Passed: 4}, {Step: 1, Task: 1, Samples: 8, Passed: 8},
		{Step: 1, Task: 2, Samples: 8}, {Step: 1, Task: 3, Samples: 100, Passed: 100},
	}
	c := choose(t, band(4, 3, 2, 0, results...))
	require.Equal(t, map[record.Reason]int{record.ReasonBand: 1, record.ReasonWidened: 2}, whys(c))
	require.Equal(t, []int{0, 1, 2}, slices.Sorted(slices.Values([]int{c.Place(0).Task, c.Place(1).Task, c.Place(2).Task})), "the nearest")
	require.Contains(t, c.Note, "too few tasks lie between 0.1 and 0.9: widened to")
	require.Less(t, c.Low, 0.1)
	require.Greater(t, c.High, 0.9)
}

func TestATaskComesBackWhenItsResultsAreForgotten(t *testing.T) {
	t.Parallel()
	failed := curriculum.Result{Step: 1, Task: 0, Samples: 8}
	inBand := func(step int) bool { return choose(t, band(1, 1, step, 0, failed)).InBand == 1 }
	back := 2
	for !inBand(back) {
		back++
	}
	// 0.5 / (1 + 8 · 0.97^age) passes 0.1 where 0.97^age falls below a half.
	require.Equal(t, 1+23, back)
	for step := back; step < 200; step++ {
		require.True(t, inBand(step), "and stays in until it is attempted, step %d", step)
	}
}

func TestExplorationTakesExactlyItsShare(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		share, places := rapid.Float64Range(0, 1).Draw(t, "share"), rapid.IntRange(1, 20).Draw(t, "places")
		explored, steps := 0, 40
		for step := 1; step <= steps; step++ {
			explored += whys(choose(t, band(100, places, step, share)))[record.ReasonExplored]
		}
		require.InDelta(t, share*float64(places*steps), float64(explored), 1)
	})
}

func TestExplorationReachesEveryTask(t *testing.T) {
	t.Parallel()
	var results []curriculum.Result
	seen := map[int]bool{}
	for step := 1; step <= 40; step++ {
		c := choose(t, band(60, 8, step, 0.25, results...))
		for k := range c.Places {
			task := c.Place(k).Task
			seen[task] = true
			passed := 4 // the first ten tasks keep the band full
			if task >= 10 {
				passed = 0
			}
			results = append(results, curriculum.Result{Step: step, Task: task, Samples: 8, Passed: passed})
		}
	}
	require.Len(t, seen, 60)
}

func TestTheEasiestComeFirstAndAllInTheEnd(t *testing.T) {
	t.Parallel()
	in := curriculum.Input{Curriculum: spec.Curriculum{Type: spec.CurriculumEasiestFirst, Start: 0.25, Difficulty: "d", Steps: 3}, Pool: curriculum.Pool{Tasks: 20}, Seed: 3, Places: 4, Steps: 9}
	for i := range 20 {
		in.Difficulty = append(in.Difficulty, float64((i*7)%20)) // each difficulty once
	}
	for step, open := range []int{5, 10, 15, 20, 20} {
		in.Step = step + 1
		c := choose(t, in)
		require.Equal(t, open, c.Open)
		for k := range 4 {
			require.Less(t, *c.Place(k).Rate, float64(open))
		}
	}
	in.Step, in.Reserves = 1, 4
	c := choose(t, in)
	hardest := c.Place(7)
	require.Equal(t, record.ReasonHarder, hardest.Why, "reserves go on with the next easiest")
	require.InDelta(t, 7, *hardest.Rate, 0)
}

func TestRecordedPassRatesOrderTasksWithoutDifficulty(t *testing.T) {
	t.Parallel()
	in := curriculum.Input{Curriculum: spec.Curriculum{Type: spec.CurriculumEasiestFirst, Start: 0.15, Forget: 0.03}, Pool: curriculum.Pool{Tasks: 10}, Seed: 3, Places: 2, Step: 2, Steps: 1000}
	in.Results = []curriculum.Result{{Step: 1, Task: 4, Samples: 8, Passed: 8}, {Step: 1, Task: 7, Samples: 8, Passed: 6}, {Step: 1, Task: 1, Samples: 8}}
	c := choose(t, in)
	require.Equal(t, []int{4, 7}, slices.Sorted(slices.Values([]int{c.Place(0).Task, c.Place(1).Task})))
	in.Curriculum.Start, in.Places = 1, 10
	require.Equal(t, 10, whys(choose(t, in))[record.ReasonEasy])
}
