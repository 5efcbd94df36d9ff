package grading_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/grading"
)

func TestWordsAroundAnAnswerAreLeftOut(t *testing.T) {
	t.Parallel()
	var graders grading.Graders
	defer graders.Close()
	source, _ := zoo(t, "SELECT name FROM animal WHERE legs = 4")
	animals, err := graders.Open(t.Context(), spec.Tasks{}, spec.Grader{Type: spec.GraderSQL}, source)
	require.NoError(t, err)
	four := tasks.Task{ID: "a", Answer: "4"}
	for _, c := range []struct {
		grader  spec.Grader
		task    tasks.Task
		text    string
		written float64
		without float64
	}{
		{spec.Grader{Type: spec.GraderSQL}, animals[0], "```sql\nSELECT name FROM animal WHERE legs = 4\n```", 0, 1},
		{spec.Grader{Type: spec.GraderSQL}, animals[0], "SELECT name FROM animal WHERE legs = 4; This lists them.", 0, 1},
		{spec.Grader{Type: spec.GraderSQL}, animals[0], "SELECT legs FROM animal", 0, 0},
		{spec.Grader{Type: spec.GraderSQL}, animals[0], "no idea", 0, 0},
		{spec.Grader{Type: spec.GraderNumeric, Extract: spec.ExtractBoxed}, four, "So it is 4.", 0, 1},
		{spec.Grader{Type: spec.GraderNumeric}, four, "2 + 2 = 4, not 5", 0, 0},
		{spec.Grader{Type: spec.GraderExact}, four, "The answer:\n4\n", 0, 1},
		{spec.Grader{Type: spec.GraderExact}, four, "```text\n4\n```\nas you asked", 0, 1},
		{spec.Grader{Type: spec.GraderExact}, four, "```4```", 0, 1},
		{spec.Grader{Type: spec.GraderExact}, four, "The answer is 4", 0, 0},
		{spec.Grader{Type: spec.GraderContains}, four, "The answer is 4", 1, 1},
	} {
		got, _, err := graders.Grade(t.Context(), c.grader, c.task, c.text)
		require.NoError(t, err)
		require.InDelta(t, c.written, got, 0, "%s: %s", c.grader.Type, c.text)
		got, err = graders.GradeWithoutProse(t.Context(), c.grader, c.task, c.text)
		require.NoError(t, err)
		require.InDelta(t, c.without, got, 0, "%s: %s", c.grader.Type, c.text)
	}
}

func TestGradersSayWhatTheyCanDoWithText(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"exact", "numeric", "contains", "qa", "sql", "command", "tasks", "harbor", "agent"} {
		g := spec.Grader{Type: name}
		require.Equal(t, name != "command" && name != "tasks" && name != "harbor" && name != "agent", grading.GradesTexts(g), name)
		require.True(t, grading.GradesTexts(g) || !grading.KnowsProse(g), name)
	}
}
