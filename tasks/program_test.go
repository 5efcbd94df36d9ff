//go:build unix

package tasks_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

// program returns tasks whose tasks.command is a shell script.
func program(script string) spec.Tasks {
	return spec.Tasks{Command: []string{"sh", "-c", script}}
}

// answering returns a script that answers each request with a line of JSON, which has the
// request's id and these fields. In fields, $n is the number of the request.
func answering(fields string) string {
	return `n=0; while read -r line; do n=$((n+1)); echo "{\"id\": \"$n\", ` + strings.ReplaceAll(fields, `"`, `\"`) + `}"; done`
}

func TestAProgramListsTasks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	of := program(`cat > request; echo '{"id": 1, "input": "2+2", "answer": {"entry":[4]}}'; echo; echo '{"id": "b", "input": "3", "metadata": {"k": 1}}'`)
	of.Directory = dir
	list, err := tasks.OpenSplit(t.Context(), of, "command:held out")
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, tasks.Task{ID: "1", Input: "2+2", Answer: `{"entry":[4]}`}, list[0])
	request, err := os.ReadFile(filepath.Join(dir, "request"))
	require.NoError(t, err)
	require.JSONEq(t, `{"list": "held out"}`, string(request))
}

func TestAProgramThatListsNoTasksIsNamed(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"echo no data >&2; exit 3": "tasks.command, split train: sh: grader failed: exit status 3; it wrote: no data",
		"true":                     "read tasks.command, split train: no tasks: it holds none",
		`echo '{"id": 1}'`:         "tasks.command, split train:1: no input",
		"echo hello":               "tasks.command, split train:1: ",
	} {
		_, err := tasks.OpenSplit(t.Context(), program(script), "command:train")
		require.ErrorContains(t, err, want, script)
	}
	_, err := tasks.OpenSplit(t.Context(), spec.Tasks{}, "command:train")
	require.ErrorContains(t, err, "tasks.command is missing")
	_, err = tasks.OpenSplit(t.Context(), spec.Tasks{Command: []string{"/no/such/program"}}, "command:train")
	require.ErrorContains(t, err, "/no/such/program")
}

func TestThePythonExceptionOfAProgramStandsAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tasks.py"), []byte("import sys\nprint('reading', file=sys.stderr)\ndef f(n):\n    return f(n - 1) if n else {}['gold']\ntry:\n    f(20)\nexcept KeyError as e:\n    raise ValueError('no gold') from e\n"), 0o600))
	of := spec.Tasks{Command: []string{"python3", "tasks.py"}, Directory: dir}
	_, err := tasks.OpenSplit(t.Context(), of, "command:train")
	require.ErrorContains(t, err, "it wrote: reading\nKeyError: 'gold' ("+filepath.Join(dir, "tasks.py")+":4)\nValueError: no gold ("+filepath.Join(dir, "tasks.py")+":8)")
	require.NotContains(t, err.Error(), "Traceback")
	_, err = grade(t, programs(t), of)
	require.ErrorContains(t, err, "ValueError: no gold")
	require.NotContains(t, err.Error(), "Traceback")
}

// grade lets a program grade a result.
func grade(t *testing.T, p *tasks.Programs, of spec.Tasks) (float64, error) {
	t.Helper()
	return p.Grade(t.Context(), of, 30, tasks.Task{ID: "t-42", Input: "2+2", Answer: "4"}, "say \"4\"\n")
}

func programs(t *testing.T) *tasks.Programs {
	t.Helper()
	p := &tasks.Programs{}
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func TestAProgramIsKeptForTheNextResult(t *testing.T) {
	t.Parallel()
	p, of := programs(t), program(`read -r line; printf %s "$line" > request; printf '\n{"id": "1", "reward": 0.5}\n'; read -r line; echo '{"id": "2", "reward": -2, "more": 1}'`)
	of.Directory = t.TempDir()
	for _, want := range []float64{0.5, -2, 0.5} { // the third time it has ended, and is started again
		got, err := grade(t, p, of)
		require.NoError(t, err)
		require.InDelta(t, want, got, 0)
	}
	request, err := os.ReadFile(filepath.Join(of.Directory, "request"))
	require.NoError(t, err)
	require.JSONEq(t, `{"id": "1", "grade": {"task": {"id": "t-42", "input": "2+2", "answer": "4"}, "result": "say \"4\"\n"}}`, string(request))
}

func TestFaultsOfAProgramAreNamed(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]error{
		answering(`"fault": "task", "message": "no entry"`):   tasks.ErrTask,
		answering(`"fault": "machine", "message": "no disk"`): tasks.ErrMachine,
		answering(`"fault": "me"`):                            tasks.ErrGraderReward,
		answering(`"reward": "1"`):                            tasks.ErrGraderReward,
		answering(`"reward": null`):                           tasks.ErrGraderReward,
		"read -r line; echo 1":                                tasks.ErrGraderReward,
		`read -r line; echo '{"reward": 1}'`:                  tasks.ErrGraderReward,
		"read -r line; echo oh >&2":                           tasks.ErrGraderExit,
		"exit 3":                                              tasks.ErrGraderExit,
	} {
		_, err := grade(t, programs(t), program(script))
		require.ErrorIs(t, err, want, script)
		var command *tasks.CommandError
		require.ErrorAs(t, err, &command)
		require.Equal(t, "t-42", command.Task)
		if strings.Contains(script, "oh") {
			require.ErrorContains(t, err, "it wrote: oh")
		}
	}
	_, err := grade(t, programs(t), spec.Tasks{Command: []string{"/no/such/program"}})
	require.ErrorIs(t, err, tasks.ErrGraderStart)
	_, err = grade(t, programs(t), spec.Tasks{})
	require.ErrorIs(t, err, tasks.ErrGraderStart)
}

// A line that a library printed must not become the reward of the next result.
func TestAnAnswerToAnotherRequestIsNone(t *testing.T) {
	t.Parallel()
	p := programs(t)
	of := program(`n=0; while read -r line; do n=$((n+1)); echo "{\"id\": \"$n\", \"reward\": 1}"; echo '{"id": "1", "reward": 9}'; done`)
	for range 3 {
		got, err := grade(t, p, of)
		require.NoError(t, err, "a program that was kept and answers wrongly is started again")
		require.InDelta(t, 1, got, 0)
	}
}

func TestAProgramWithoutWorkIsEnded(t *testing.T) {
	t.Parallel()
	p := programs(t)
	p.Idle = time.Nanosecond
	fifo := filepath.Join(t.TempDir(), "alive")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	ended := make(chan error, 1)
	go func() {
		_, err := os.ReadFile(fifo) // ends when the program ends, which has the file open
		ended <- err
	}()
	_, err := grade(t, p, program("exec 3> '"+fifo+"'; "+answering(`"reward": 1`)))
	require.NoError(t, err)
	require.NoError(t, <-ended)
}

func TestAProgramOverItsTimeIsEnded(t *testing.T) {
	t.Parallel()
	p := programs(t)
	_, err := p.Grade(t.Context(), program("read -r line; exec sleep 1000"), 0.2, tasks.Task{ID: "t"}, "r")
	require.ErrorIs(t, err, tasks.ErrGraderTime)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Grade(ended, program("read -r line; exec sleep 1000"), 30, tasks.Task{ID: "t"}, "r")
	require.ErrorIs(t, err, context.Canceled)
	var command *tasks.CommandError
	require.NotErrorAs(t, err, &command, "nothing is known of the program")
}
