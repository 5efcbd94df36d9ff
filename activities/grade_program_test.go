package activities_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/spec"
)

// programmed returns a spec with a shell program that lists two tasks and answers each
// request to grade with the fields. The program writes its requests to the file asked.
func (w *testEnv) programmed(fields string) spec.Spec {
	s := w.spec()
	script := fmt.Sprintf(`n=0; while read -r line; do case "$line" in
*list*) echo '{"id": "a", "input": "6*7", "answer": {"k": 1}}'; echo '{"id": "b", "input": "2"}' ;;
*) n=$((n+1)); printf '%%s\n' "$line" >> asked; printf '{"id": "%%s", %%s}\n' "$n" '%s' ;;
esac; done`, fields)
	s.Tasks = spec.Tasks{Command: []string{"sh", "-c", script}, Directory: w.dir, Train: "command:train"}
	s.Grader = spec.Grader{Type: spec.GraderTasks}
	return s
}

// graded returns the result of grading one attempt.
func (w *testEnv) graded(fields string) (activities.GradeRolloutResult, error) {
	w.t.Helper()
	w.start(w.programmed(fields))
	runner := w.runner(w.serve(w.gateway()), answers("42"))
	w.t.Cleanup(runner.Close)
	run, err := do[activities.RunAgentResult](w.t, runner.RunAgent, rollout(0, 0))
	require.NoError(w.t, err)
	require.Nil(w.t, run.Reward, "an activity of its own decides")
	return do[activities.GradeRolloutResult](w.t, runner.GradeRollout, activities.GradeRolloutInput{Address: at(rollout(0, 0), 1)})
}

func TestAProgramListsTasksAndGradesThem(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	got, err := w.graded(`"reward": 0.25`)
	require.NoError(t, err)
	require.Equal(t, activities.GradeRolloutResult{Reward: 0.25}, got)
	asked, err := os.ReadFile(filepath.Join(w.dir, "asked"))
	require.NoError(t, err)
	require.JSONEq(t, `{"id": "1", "grade": {"task": {"id": "a", "input": "6*7", "answer": "{\"k\":1}"}, "result": "42"}}`, string(asked))
}

func TestAFaultThatAProgramNamesIsOneOfTheTaskOrOfTheMachine(t *testing.T) {
	t.Parallel()
	got, err := newTestEnv(t).graded(`"fault": "task", "message": "no entry"`)
	require.NoError(t, err)
	require.Contains(t, got.TaskFault, "grade task a: the program says that the task is at fault: no entry")
	w := newTestEnv(t)
	_, err = w.graded(`"fault": "machine", "message": "no disk"`)
	requireRetryable(t, err, "no disk")
	runner := w.runner(w.serve(w.gateway()), answers("42"))
	t.Cleanup(runner.Close)
	for range activities.GraderTries + 1 {
		_, err = do[activities.GradeRolloutResult](t, runner.GradeRollout, activities.GradeRolloutInput{Address: at(rollout(0, 0), 1)})
		requireRetryable(t, err, "no disk") // however often it is asked
	}
}

func TestARunWhoseProgramListsNothingIsRefused(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.programmed("")
	s.Tasks.Command = []string{"sh", "-c", "echo no data >&2; exit 3"}
	_, err := do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, w.request(s))
	requireRefused(t, err, "tasks.train: tasks.command, split train: sh: grader failed: exit status 3", "no data")
}
