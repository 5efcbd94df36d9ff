//go:build unix

package tasks_test

import (
	"context"
	"errors"
	"io/fs"
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

func shell(script string) spec.Grader {
	return spec.Grader{Type: spec.GraderCommand, Command: []string{"sh", "-c", script}, Seconds: 30}
}

// of returns the input for a result of a task.
func of(id, result string) tasks.GraderInput {
	return tasks.GraderInput{Task: tasks.Task{ID: id}, Result: result}
}

func TestGraderCommandDecides(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]float64{
		"echo 1": 1, "echo thinking; echo -0.5; echo; echo '  '": -0.5, "printf 1e-3": 1e-3,
		"echo noise >&2; echo 2\r": 2, "head -c 300000 /dev/zero | tr '\\0' 'x'; echo; echo 0.25": 0.25,
		"exec 0<&-; echo 3": 3, // it needn't read its input
	} {
		got, err := tasks.GradeCommand(t.Context(), shell(script), of("t", "r"))
		require.NoError(t, err, script)
		require.InDelta(t, want, got.Reward, 0, script)
	}
}

func TestGraderCommandReadsTaskAndResult(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := shell("cat > input.json; echo 1")
	g.Directory = dir
	task := tasks.Task{ID: "t", Input: "2+2", Answer: "4", Metadata: map[string]any{"k": "v"}}
	_, err := tasks.GradeCommand(t.Context(), g, tasks.GraderInput{Task: task, Result: "say \"4\"\n"})
	require.NoError(t, err)
	long := strings.Repeat("x", 200<<10) + " 4"
	check := shell(`head -c 1000000 | grep -q ' 4"' && echo 1`)
	got, err := tasks.GradeCommand(t.Context(), check, tasks.GraderInput{Task: task, Result: long})
	require.NoError(t, err)
	require.InDelta(t, 1, got.Reward, 0, "it reads all of a long result")
	input, err := os.ReadFile(filepath.Join(dir, "input.json"))
	require.NoError(t, err)
	require.JSONEq(t, `{"task":{"id":"t","input":"2+2","answer":"4","metadata":{"k":"v"}},"result":"say \"4\"\n"}`, string(input))
}

func TestGraderFailuresAreTypedAndNameTheTask(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]error{
		"echo 1; echo broken >&2; exit 3": tasks.ErrGraderExit, "kill -9 $$": tasks.ErrGraderExit,
		"true": tasks.ErrGraderReward, "echo good": tasks.ErrGraderReward, "echo nan": tasks.ErrGraderReward,
		"printf 'no '; head -c 70000 /dev/zero | tr '\\0' ' '; echo 1": tasks.ErrGraderReward, // a part of a line
		"echo inf": tasks.ErrGraderReward, "echo 1e999": tasks.ErrGraderReward, "echo 1; echo done": tasks.ErrGraderReward,
	} {
		_, err := tasks.GradeCommand(t.Context(), shell(script), of("t-42", "r"))
		require.ErrorIs(t, err, want, script)
		var command *tasks.CommandError
		require.ErrorAs(t, err, &command)
		require.Equal(t, "t-42", command.Task)
		require.ErrorContains(t, err, "grade task t-42: ")
		require.Equal(t, strings.Contains(script, "broken"), strings.Contains(err.Error(), "it wrote: broken"), script)
	}
	for _, command := range [][]string{nil, {"/no/such/program"}} {
		_, err := tasks.GradeCommand(t.Context(), spec.Grader{Command: command}, of("t", "r"))
		require.ErrorIs(t, err, tasks.ErrGraderStart)
	}
	_, err := tasks.GradeCommand(t.Context(), spec.Grader{Command: []string{"/no/such/program"}}, of("t", "r"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestGraderOverItsTimeIsKilledWithItsChildren(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "alive")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	g := shell("(sleep 1000 > '" + fifo + "') & exec sleep 1000 > '" + fifo + "'")
	g.Seconds = 0.2
	read := make(chan error, 1)
	go func() {
		_, err := os.ReadFile(fifo) // ends when no process has the other end open
		read <- err
	}()
	_, err := tasks.GradeCommand(t.Context(), g, of("t", "r"))
	require.ErrorIs(t, err, tasks.ErrGraderTime)
	require.ErrorContains(t, err, "0.2 seconds")
	select {
	case err := <-read:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("a child of the grader is still alive")
	}
}

func TestChildrenLeftBehindAreKilledAndChangeNoReward(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "alive")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	read := make(chan error, 1)
	go func() {
		_, err := os.ReadFile(fifo)
		read <- err
	}()
	reward, err := tasks.GradeCommand(t.Context(), shell("exec 3>'"+fifo+"'; sleep 1000 & echo 1"), of("t", "r"))
	require.NoError(t, err)
	require.InDelta(t, 1, reward.Reward, 0)
	select {
	case err := <-read:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("a child of the grader is still alive")
	}
}

func TestCancelledGradingIsNoVerdict(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := tasks.GradeCommand(ctx, shell("sleep 1000"), of("t", "r"))
	require.ErrorIs(t, err, context.Canceled)
	var command *tasks.CommandError
	require.False(t, errors.As(err, &command))
}

func TestAGraderGivesNamedRewards(t *testing.T) {
	t.Parallel()
	named := func(line string) spec.Grader {
		g := shell("printf '%s\\n' '" + line + "'")
		g.Rewards = []string{"verdict", "brevity"}
		return g
	}
	got, err := tasks.GradeCommand(t.Context(), named(`{"reward": 1, "rewards": {"verdict": 0, "brevity": 0.5}}`), of("t", "r"))
	require.NoError(t, err)
	require.Equal(t, tasks.CommandGrade{Reward: 1, Rewards: map[string]float64{"verdict": 0, "brevity": 0.5}}, got)
	for line, want := range map[string]string{
		"1": "asks for", `{"rewards": {"verdict": 0, "brevity": 1}}`: `no "reward"`, `{"reward": 1, "rewards": {"verdict": 0}}`: `no "brevity"`,
		`{"reward": 1, "rewards": {"verdict": 0, "brevity": 1, "more": 1}}`: `"more"`, `{"reward": 1, "rewards": {"verdict": "good", "brevity": 1}}`: "asks for",
		`{"reward": 1, "rewards": {"verdict": null, "brevity": 1}}`: `no "verdict"`, `{"reward": 1, "rewards": {"verdict": 0, "brevity": 1}} 2`: "more after",
		`{"reward": 1e999, "rewards": {"verdict": 0, "brevity": 1}}`: "asks for",
	} {
		_, err := tasks.GradeCommand(t.Context(), named(line), of("t", "r"))
		require.ErrorIs(t, err, tasks.ErrGraderReward, line)
		require.ErrorContains(t, err, want, line)
	}
}

func TestAGraderReadsTheCallsOfTheAttempt(t *testing.T) {
	t.Parallel()
	in := of("t", "r")
	in.Calls = []tasks.GraderCall{{Agent: "writer", Policy: "writer", Request: []byte(`{"model":"m"}`), Response: []byte(`{"id":"x"}`)}}
	got, err := tasks.GradeCommand(t.Context(), shell(`grep -q '"calls":\[{"agent":"writer","policy":"writer","request":{"model":"m"},"response":{"id":"x"}}\]' && echo 1`), in)
	require.NoError(t, err)
	require.InDelta(t, 1, got.Reward, 0)
}
