package activities_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// taskFile writes n tasks whose ids begin alike.
func (w *testEnv) taskFile(name, id string, n int) {
	w.t.Helper()
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"id":"%s%d","input":"%d+1","answer":"%d"}`+"\n", id, i, i, i+1)
	}
	w.write(name, lines.String())
}

func (w *testEnv) choose(step int, set map[string]float64) activities.ChooseTasksResult {
	w.t.Helper()
	out, err := do[activities.ChooseTasksResult](w.t, w.coordinator.ChooseTasks, activities.ChooseTasksInput{
		Run: "demo", Policy: model.DefaultPolicy, Step: step, Count: 2, Set: set,
	})
	require.NoError(w.t, err)
	return out
}

// attempted records the results of a group.
func (w *testEnv) attempted(step, task int, id string, rewards ...float64) {
	w.t.Helper()
	for sample, reward := range rewards {
		a, err := w.store.BeginAttempt(w.t.Context(), record.RolloutID{Run: "demo", Kind: record.Train, Step: step, Task: task, Sample: sample}, id, record.Terms{Policy: model.DefaultPolicy}, "key")
		require.NoError(w.t, err)
		require.NoError(w.t, w.store.SealAttempt(w.t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &reward}))
	}
}

func TestAChoiceIsMadeOnceFromWhatIsOnRecord(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.taskFile("tasks.jsonl", "a", 6)
	s, none := w.spec(), 0.0
	s.Training.Curriculum = &spec.Curriculum{Type: spec.CurriculumBand, Explore: &none}
	w.prepare(s)
	first := w.choose(1, nil)
	require.Equal(t, first, w.choose(1, nil))
	for i, task := range first.Tasks { // the first is learnable, the second is not
		w.attempted(1, i, fmt.Sprintf("a%d", task), float64(1-i), 0, float64(1-i), 0)
		if i == 1 {
			w.attempted(2, 9, fmt.Sprintf("a%d", task), 0, 0, 0, 0, 0, 0, 0, 0)
		}
	}
	require.Equal(t, first, w.choose(1, nil), "whatever was attempted since")
	second := w.choose(2, nil)
	require.ElementsMatch(t, first.Tasks, second.Tasks, "both are in the band, and step 2 is not finished")
	third := w.choose(3, nil)
	require.Equal(t, first.Tasks[0], third.Tasks[0])
	require.NotEqual(t, first.Tasks[1], third.Tasks[1], "which never succeeded in step 2")
	require.InDelta(t, 0.5, third.Metrics["curriculum/band"], 0)
	require.Equal(t, third, w.choose(3, map[string]float64{"training.curriculum.low": 0.01}), "whatever was set since")
	w.choose(4, map[string]float64{"training.curriculum.low": 0.01})
	choice, err := w.store.Choice(t.Context(), "demo", model.DefaultPolicy, 4)
	require.NoError(t, err)
	require.Contains(t, string(choice.Settings), `"low":0.01`)
	require.Equal(t, 2, choice.Count(record.ReasonBand), "the wider band has both again")
}

func TestStagesOfFilesMakeOneSplit(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.taskFile("tasks.jsonl", "a", 3)
	w.taskFile("more.jsonl", "b", 4)
	s := w.spec()
	s.Training.Curriculum = &spec.Curriculum{Type: spec.CurriculumStages, Stages: []spec.Stage{{Until: spec.Until{Steps: 1}}, {Tasks: "more.jsonl"}}}
	prepared := w.prepare(s)
	require.Equal(t, []int{3, 4}, prepared.Splits[record.Train].Parts)
	require.Equal(t, 7, prepared.Splits[record.Train].Count)
	for _, task := range w.choose(1, nil).Tasks {
		require.Less(t, task, 3)
	}
	second := w.choose(2, nil)
	for _, task := range second.Tasks {
		require.GreaterOrEqual(t, task, 3)
	}
	require.Contains(t, second.Text, "stage 2 begins, since stage 1 had its 1 step")
}

func TestSourcesOfStagesThatShareIdsAreRefused(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.taskFile("more.jsonl", "a", 4)
	w.taskFile("tasks.jsonl", "a", 3)
	s := w.spec()
	s.Training.Curriculum = &spec.Curriculum{Type: spec.CurriculumStages, Stages: []spec.Stage{{Until: spec.Until{Steps: 1}}, {Tasks: "more.jsonl"}}}
	_, err := do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, w.request(s))
	require.ErrorContains(t, err, `id "a0" is there, and in`)
	s.Training.Curriculum = &spec.Curriculum{Type: spec.CurriculumBand}
	s.Training.TasksPerStep = 4
	_, err = do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, w.request(s))
	require.ErrorContains(t, err, "4 tasks a step, and tasks.train has 3")
}
