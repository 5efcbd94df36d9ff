package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

// programOf returns the program of an example that speaks for a library. The test is
// skipped if `make examples` hasn't installed the library.
func programOf(t *testing.T, example string, arguments ...string) spec.Tasks {
	t.Helper()
	python, err := filepath.Abs(filepath.Join("../../.examples", example, "bin", "python"))
	require.NoError(t, err)
	if _, err := os.Stat(python); err != nil {
		t.Skip("make examples ONLY=" + example + " installs its library")
	}
	folder, err := filepath.Abs("testdata")
	require.NoError(t, err)
	script, err := filepath.Abs(filepath.Join("../../examples", example, "tasks.py"))
	require.NoError(t, err)
	return spec.Tasks{Command: append([]string{"env", "PYTHONPATH=" + folder, python, "-B", script}, arguments...), Directory: t.TempDir()}
}

// Entries with tuples and grids are others after JSON.
func TestGoldAnswersOfReasoningGymEarnOne(t *testing.T) {
	t.Parallel()
	for _, dataset := range []string{"arc_agi", "number_sequence"} {
		program := programOf(t, "reasoning-gym", dataset, "3")
		train, err := tasks.OpenSplit(t.Context(), program, "command:train")
		require.NoError(t, err)
		test, err := tasks.OpenSplit(t.Context(), program, "command:test")
		require.NoError(t, err)
		require.False(t, tasks.Overlaps(train, test).Leaks(), "items of near seeds are the same")
		var programs tasks.Programs
		for _, task := range train {
			var gold struct {
				Answer string `json:"answer"`
			}
			require.NoError(t, json.Unmarshal([]byte(task.Answer), &gold))
			reward, err := programs.Grade(t.Context(), program, 60, task, gold.Answer)
			require.NoError(t, err)
			require.InDelta(t, 1, reward, 0, "%s: %s", dataset, task.ID)
		}
		require.NoError(t, programs.Close())
	}
}

func TestTasksOfVerifiersKeepTheirDataAndTheirMessages(t *testing.T) {
	t.Parallel()
	program := programOf(t, "verifiers", "odd_tasks:Odd")
	list, err := tasks.OpenSplit(t.Context(), program, "command:all")
	require.NoError(t, err)
	require.Len(t, list, 3)
	messages, err := json.Marshal(list[0].Metadata["messages"])
	require.NoError(t, err)
	require.JSONEq(t, `[{"role": "system", "content": "Be short."}, {"role": "user", "content": "2+2?"}]`, string(messages))
	messages, err = json.Marshal(list[1].Metadata["messages"])
	require.NoError(t, err)
	require.JSONEq(t, `[{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "5"}, {"role": "user", "content": "Sure?"}]`, string(messages))
	require.Empty(t, list[2].Metadata)
	var programs tasks.Programs
	for _, task := range list {
		reward, err := programs.Grade(t.Context(), program, 60, task, "4")
		require.NoError(t, err)
		require.InDelta(t, 1, reward, 0, task.ID)
	}
	require.NoError(t, programs.Close())
	_, err = tasks.OpenSplit(t.Context(), programOf(t, "verifiers", "odd_tasks:Open"), "command:all")
	require.ErrorContains(t, err, "task 0 of all has no prompt: its user opens the conversation")
}
