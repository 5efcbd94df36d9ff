package tasks_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/arithmetic"
)

func TestGeneratedSplitsShareNothing(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for source, count := range map[string]int{"arithmetic:train": 1024, "arithmetic:gate": 128, "arithmetic:test": 256} {
		list, err := tasks.Open(source)
		require.NoError(t, err)
		require.Len(t, list, count)
		require.NoError(t, tasks.CheckAnswers(spec.Grader{Type: spec.GraderNumeric}, list))
		for _, task := range list {
			other, taken := seen[task.Input]
			require.False(t, taken, "%s is in %s and %s", task.Input, source, other)
			seen[task.Input] = source
			value, err := arithmetic.Evaluate(task.Input)
			require.NoError(t, err)
			require.Equal(t, strconv.Itoa(value), task.Answer)
		}
		fewer, err := tasks.Open(source + ":10")
		require.NoError(t, err)
		require.Equal(t, list[:10], fewer)
	}
}

func TestGeneratedTasksSurviveASnapshot(t *testing.T) {
	t.Parallel()
	list, err := tasks.Open("arithmetic:train:50")
	require.NoError(t, err)
	data, err := tasks.Encode(list)
	require.NoError(t, err)
	again, err := tasks.Decode(data)
	require.NoError(t, err)
	require.Equal(t, list, again)
}

func TestOpenReadsAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "t.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(`{"id":"a","input":"b"}`), 0o600))
	list, err := tasks.Open(path)
	require.NoError(t, err)
	require.Equal(t, []tasks.Task{{ID: "a", Input: "b"}}, list)
	_, err = tasks.Open(path + ".not")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("{}"), 0o600))
	_, err = tasks.Open(path)
	require.ErrorContains(t, err, path+":1: no id")
}

func TestOpenRefusesBadGenerators(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"arithmetic", "arithmetic:dev", "arithmetic:train:0", "arithmetic:gate:99999"} {
		_, err := tasks.Open(source)
		require.Error(t, err, source)
	}
}
