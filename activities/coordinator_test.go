package activities_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

func TestAPreparedRunIsWhatTheSpecMeans(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	got := w.prepare(w.spec())
	require.True(t, got.SearchAttributes)
	require.Equal(t, filepath.Join(w.dir, "tasks.jsonl"), got.Spec.Tasks.Train, "paths are absolute")
	require.Equal(t, "native", got.Spec.Model.Engine, "defaults are filled in")
	require.Equal(t, 2, got.Splits[record.Train].Count)
	run, err := w.store.Run(t.Context(), "demo")
	require.NoError(t, err)
	require.Equal(t, record.Running, run.Status)
	require.Equal(t, spec.Digest(got.Spec), run.SpecDigest)
	var kept spec.Spec
	require.NoError(t, json.Unmarshal(run.Spec, &kept))
	require.Empty(t, cmp.Diff(got.Spec, kept))
}

func TestABadSpecIsRefusedWithAllItsFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		input string
		words []string
	}{
		"keys, values and files": {
			`{"agent": {"func": "f"}, "model": {"base": "nowhere"}, "tasks": {"train": "absent.jsonl"}, "grader": {"type": "exakt"}, "training": {"steps": 1, "tempo": 3}}`,
			[]string{"training.tempo", "grader.type", "tasks.train", "absent.jsonl", "model.base"},
		},
		"contradictions and files": {
			`{"agent": {"func": "f", "command": ["x"]}, "tasks": {"train": "absent.jsonl"}, "grader": {"type": "exact"}, "training": {"steps": 1, "epochs": 2}}`,
			[]string{"agent", "training.epochs", "absent.jsonl"},
		},
		"tasks of all splits": {
			`{"agent": {"func": "f"}, "tasks": {"train": "DIR/bad.jsonl", "gate": "DIR/tasks.jsonl", "test": "DIR/worse.jsonl"}, "grader": {"type": "numeric"}, "training": {"steps": 1}}`,
			[]string{"tasks.train", "task x", "tasks.test", "worse.jsonl"},
		},
		"paths that are relative": {
			`{"agent": {"command": ["./agent"]}, "model": {"base": "base"}, "tasks": {"train": "tasks.jsonl", "gate": "DIR/tasks.jsonl", "test": "arithmetic:test"}, "grader": {"command": ["sh/grade"], "directory": "here"}, "training": {"steps": 1}}`,
			[]string{"tasks.train", `"tasks.jsonl" is relative`, "give an absolute path", "model.base", `"./agent"`, "agent.command", "grader.command", "grader.directory"},
		},
		"no JSON": {`{`, []string{"workflow input.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			w.write("bad.jsonl", `{"id":"x","input":"i","answer":"none"}`)
			w.write("worse.jsonl", `{"id":"x"}`)
			in := w.request(w.spec())
			in.Spec = json.RawMessage(strings.ReplaceAll(c.input, "DIR", w.dir))
			_, err := w.coordinator.PrepareRun(t.Context(), in)
			require.Error(t, err)
			if json.Valid(in.Spec) { // an input that is not JSON does not reach an activity
				_, err = do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, in)
			}
			if json.Valid(in.Spec) {
				requireRefused(t, err, c.words...)
			}
			run, err := w.store.Run(t.Context(), "demo")
			require.NoError(t, err)
			require.Equal(t, record.Refused, run.Status)
			for _, word := range c.words {
				require.Contains(t, run.Failure().Error, word, "why is on record")
			}
			require.False(t, run.Finished.IsZero())
			w.prepare(w.spec())
			run, err = w.store.Run(t.Context(), "demo")
			require.NoError(t, err)
			require.Equal(t, record.Running, run.Status, "the name was free")
			require.Empty(t, run.Result)
			require.True(t, run.Finished.IsZero())
		})
	}
}

// requireRefused requires the error of a refused spec.
func requireRefused(t *testing.T, err error, words ...string) {
	t.Helper()
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, activities.ErrTypeRefused, failure.Type())
	require.True(t, failure.NonRetryable())
	for _, word := range words {
		require.Contains(t, err.Error(), word)
	}
}

func TestAWorkflowIDThatCanNameNoRunIsRefused(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	in := w.request(w.spec())
	in.Run = "Not A Name"
	_, err := do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, in)
	requireFinal(t, err, "Not A Name")
}

func TestARunNameBelongsToOneExecution(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.prepare(w.spec())
	in := w.request(w.spec())
	in.ExecutionID = "execution-2"
	_, err := do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, in)
	requireNoRetry(t, err, activities.ErrRunExists.Error(), "demo (running", "another workflow id")
}

func TestTheSameExecutionFindsItsRunAsItStands(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	first := w.prepare(w.spec())
	w.write("tasks.jsonl", `{"id":"c","input":"1","answer":"1"}`)
	require.Empty(t, cmp.Diff(first, w.prepare(w.spec())), "although the file has changed")
	require.NoError(t, os.Remove(filepath.Join(w.dir, "tasks.jsonl")))
	require.Empty(t, cmp.Diff(first, w.prepare(w.spec())), "although the file is gone")
}

func TestEqualTasksHaveOneSnapshot(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	first := w.prepare(s)
	w.write("moved.jsonl", `{"answer":"42", "input":"6*7", "id":"a"}`+"\r\n\n"+`{"id":"b","input":"2-5","answer":"-3"}`)
	s.Tasks.Train = "moved.jsonl"
	in := w.request(s)
	in.Run = "other"
	second, err := do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, in)
	require.NoError(t, err)
	require.Equal(t, first.Splits, second.Splits)
}

// finish executes FinishRun, which returns nothing but an error.
func (w *testEnv) finish(execution string, status record.Status, result string) error {
	f := w.coordinator.FinishRun
	_, err := environment(f, nil).ExecuteActivity(f, activities.FinishRunInput{
		Run: "demo", ExecutionID: execution, Status: status, Result: json.RawMessage(result),
	})
	return err
}

func TestOnlyItsOwnExecutionFinishesARun(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	require.NoError(t, w.finish(execution, record.Failed, `{}`), "there is no record to close")
	w.prepare(w.spec())
	require.NoError(t, w.finish("execution-2", record.Failed, `{}`))
	run, err := w.store.Run(t.Context(), "demo")
	require.NoError(t, err)
	require.Equal(t, record.Running, run.Status)

	require.NoError(t, w.finish(execution, record.Completed, `{"steps":3}`))
	require.NoError(t, w.finish(execution, record.Completed, `{"steps":3}`))
	run, err = w.store.Run(t.Context(), "demo")
	require.NoError(t, err)
	require.Equal(t, record.Completed, run.Status)
	require.JSONEq(t, `{"steps":3}`, string(run.Result))
	require.NoError(t, w.finish(execution, record.Failed, `{"error":"no luck"}`), "it was reset, and ended again")
	run, err = w.store.Run(t.Context(), "demo")
	require.NoError(t, err)
	require.Equal(t, record.Failed, run.Status)
	require.Equal(t, "no luck", run.Failure().Error)
}

func TestARefusedRunIsNotFinished(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	in := w.request(w.spec())
	in.Spec = json.RawMessage(`{}`)
	_, err := do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, in)
	requireRefused(t, err)
	require.NoError(t, w.finish(execution, record.Failed, `{"error":"refused"}`))
	run, err := w.store.Run(t.Context(), "demo")
	require.NoError(t, err)
	require.Equal(t, record.Refused, run.Status)
	first := w.prepare(w.spec()) // the same execution, reset after the cause was fixed
	require.NotEmpty(t, first.Splits)
}
