package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/grading"
)

// makeData runs the script of an example that makes its own tasks.
func makeData(t *testing.T, example, seed string) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	folder := filepath.Join(t.TempDir(), "data")
	command := exec.CommandContext(t.Context(), "python3", "-B", filepath.Join("../../examples", example, "data.py"), folder, seed)
	text, err := command.CombinedOutput()
	require.NoError(t, err, "%s", text)
	return folder
}

// Each of these examples has these splits, and demonstrations.
func splits(t *testing.T, example, folder string) map[string]string {
	t.Helper()
	s, err := spec.Load(filepath.Join("../../examples", example, "spec.yaml"))
	require.NoError(t, err)
	source, err := spec.ParseSource(s.Tasks.Train)
	require.NoError(t, err)
	out := map[string]string{}
	for _, split := range []string{"train", "dev", "test"} {
		out[split] = source.Family + ":" + filepath.Join(folder, split+filepath.Ext(source.Path))
	}
	return out
}

func TestExamplesMakeTasksThatCanBeGraded(t *testing.T) {
	t.Parallel()
	for _, example := range []string{"sql", "questions", "math"} {
		t.Run(example, func(t *testing.T) {
			t.Parallel()
			s, err := spec.Load(filepath.Join("../../examples", example, "spec.yaml"))
			require.NoError(t, err)
			s = s.WithDefaults()
			folder := makeData(t, example, "1")
			graders := &grading.Graders{}
			defer func() { require.NoError(t, graders.Close()) }()
			lists := map[string][]tasks.Task{}
			for split, source := range splits(t, example, folder) {
				list, err := graders.Open(t.Context(), s.Tasks, s.Grader, source)
				require.NoError(t, err)
				reward, _, err := graders.Grade(t.Context(), s.Grader, list[0], right(t, list[0]))
				require.NoError(t, err)
				require.InDelta(t, 1, reward, 0)
				reward, _, err = graders.Grade(t.Context(), s.Grader, list[0], "nonsense")
				require.NoError(t, err)
				require.InDelta(t, 0, reward, 0)
				for other, has := range lists {
					require.False(t, tasks.Overlaps(list, has).Leaks(), "%s and %s", split, other)
				}
				lists[split] = list
			}
			shown, err := tasks.OpenDemonstrations(filepath.Join(folder, "demonstrations.jsonl"), 1, 1)
			require.NoError(t, err)
			for _, d := range shown.Batch(0, 256) {
				ids, _, err := dialog.Compact().Demonstration(d)
				require.NoError(t, err)
				require.LessOrEqual(t, len(ids), s.Model.Context)
			}
		})
	}
}

// right returns a result that gets the full reward: the answer, or the first of several
// answers.
func right(t *testing.T, task tasks.Task) string {
	t.Helper()
	if !strings.HasPrefix(task.Answer, "[") {
		return task.Answer
	}
	var answers []string
	require.NoError(t, json.Unmarshal([]byte(task.Answer), &answers))
	return answers[0]
}

func TestTasksOfExamplesFollowFromTheSeed(t *testing.T) {
	t.Parallel()
	read := func(seed string) string {
		text, err := os.ReadFile(filepath.Join(makeData(t, "math", seed), "train.jsonl"))
		require.NoError(t, err)
		return string(text)
	}
	require.Equal(t, read("1"), read("1"))
	require.NotEqual(t, read("1"), read("2"))
}
