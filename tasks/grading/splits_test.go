package grading_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/grading"
	"github.com/fulgurite/fulgurite/tasks/sqlmatch"
)

// jsonl writes tasks into a file, with a question and an answer each.
func jsonl(t *testing.T, questions ...string) string {
	t.Helper()
	var text strings.Builder
	for i, q := range questions {
		fmt.Fprintf(&text, `{"id": "%s-%d", "input": %q, "answer": "1"}`+"\n", t.Name(), i, q)
	}
	path := filepath.Join(t.TempDir(), "tasks.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o600))
	return path
}

func TestSplitsAreReadAndComparedTogether(t *testing.T) {
	t.Parallel()
	s := spec.Spec{Grader: spec.Grader{Type: spec.GraderExact}, Tasks: spec.Tasks{Train: jsonl(t, "a", "b", "b"), Gate: jsonl(t, "b"), Test: jsonl(t, "c")}}.WithDefaults()
	splits, err := grading.ReadSplits(t.Context(), s)
	require.NoError(t, err)
	require.Len(t, splits.Tasks, 3)
	require.Len(t, splits.Tasks[record.Train], 3)
	require.Equal(t, 3, splits.Pool.Tasks)
	require.Nil(t, splits.Parts, "there is one source")
	require.Len(t, splits.Warnings, 2)
	require.Contains(t, splits.Warnings[0], "tasks.train: "+s.Tasks.Train, "it repeats a question")
	require.Contains(t, splits.Warnings[1], "tasks.gate: ", "it shares one with train")

	s.Tasks.Test = ""
	splits, err = grading.ReadSplits(t.Context(), s)
	require.NoError(t, err)
	require.NotContains(t, splits.Tasks, record.Test)
}

func TestTheValidationSplitIsComparedWithTheOthers(t *testing.T) {
	t.Parallel()
	s := spec.Spec{Grader: spec.Grader{Type: spec.GraderExact}, Tasks: spec.Tasks{Train: jsonl(t, "a"), Gate: jsonl(t, "b"), Validation: jsonl(t, "c", "b", "a")}}.WithDefaults()
	splits, err := grading.ReadSplits(t.Context(), s)
	require.NoError(t, err)
	require.Len(t, splits.Tasks[record.Validation], 3)
	require.Len(t, splits.Warnings, 2)
	require.Contains(t, splits.Warnings[0], "tasks.validation: ", "it shares one with train")
	require.Contains(t, splits.Warnings[1], "tasks.validation: ", "it shares one with gate")

	s.Optimizer = &spec.PromptOptimizer{}
	_, err = grading.ReadSplits(t.Context(), s)
	require.ErrorContains(t, err, "tasks.validation: a reflector reads tasks")
	require.ErrorContains(t, err, "leaks into")
	s.Tasks = spec.Tasks{Train: jsonl(t, "a"), Gate: jsonl(t, "a"), Validation: jsonl(t, "c")}
	_, err = grading.ReadSplits(t.Context(), s)
	require.ErrorContains(t, err, "tasks.gate: a reflector reads tasks")
	s.Tasks = spec.Tasks{Train: jsonl(t, "a"), Gate: jsonl(t, "b"), Test: jsonl(t, "a"), Validation: jsonl(t, "c", "a2")}
	splits, err = grading.ReadSplits(t.Context(), s)
	require.NoError(t, err)
	require.Len(t, splits.Warnings, 1, "the test split is only reported")
}

func TestFaultsOfAllSplitsAreReportedTogether(t *testing.T) {
	t.Parallel()
	absent := filepath.Join(t.TempDir(), "absent.jsonl")
	s := spec.Spec{
		Agent: spec.Agent{Temporal: &spec.Temporal{Workflow: "Agent"}}, Grader: spec.Grader{Type: spec.GraderExact},
		Tasks: spec.Tasks{Train: absent, Gate: jsonl(t, strings.Repeat("a", 1<<20)), Test: jsonl(t, "c")},
	}.WithDefaults()
	splits, err := grading.ReadSplits(t.Context(), s)
	require.ErrorContains(t, err, "tasks.train: ")
	require.ErrorContains(t, err, absent)
	require.ErrorContains(t, err, "tasks.gate: task ")
	require.ErrorContains(t, err, "agent.temporal takes at most 1048576")
	require.NotErrorIs(t, err, sqlmatch.ErrDatabase)
	require.Len(t, splits.Tasks[record.Test], 1, "the others are read all the same")
}
