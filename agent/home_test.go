package agent_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/process"
	"github.com/fulgurite/fulgurite/record"
)

// startRole starts a process that plays a role. It returns what the process prints.
func startRole(t *testing.T, environment string, role ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	args := acting(role...)
	command := exec.Command(args[0], args[1:]...)
	command.Env = append(os.Environ(), environment)
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return command, bufio.NewReader(out)
}

// worker starts a process that launches attempt 1 and leaves it waiting.
func worker(t *testing.T, w liveness, scratch string) (*exec.Cmd, map[string]alive, *bufio.Reader) {
	t.Helper()
	command, said := startRole(t, "LIVENESS="+w.listener.Addr().String(), "worker", scratch)
	return command, w.await(t, 3), said
}

func TestLaterAttemptEndsTheEarlierOneOfAWorkerThatIsStopped(t *testing.T) {
	t.Parallel()
	w := newLiveness(t)
	scratch := t.TempDir()
	zombie, living, said := worker(t, w, scratch)
	require.NoError(t, zombie.Process.Signal(syscall.SIGSTOP))

	j := job("worker")
	j.Address.Attempt = 2
	j.Environment = w.environment()
	ctx, cancel := context.WithCancel(t.Context())
	second := start(ctx, agent.Command{Args: acting("hang"), Scratch: scratch}, j)
	w.await(t, 1)
	for _, l := range living {
		l.requireDead(t)
	}

	// When it wakes up, the zombie leaves the home to its new owner.
	require.NoError(t, zombie.Process.Signal(syscall.SIGCONT))
	line, err := said.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "<nil>", "an agent that was ended is a result, whatever the store makes of it")
	require.DirExists(t, filepath.Join(scratch, "worker+train-3+17+2", "tmp"))
	cancel()
	require.ErrorIs(t, (<-second).err, context.Canceled)
	left, err := os.ReadDir(scratch)
	require.NoError(t, err)
	require.Empty(t, left)
}

// A worker may be stopped while it removes a home, and go on when a later attempt has it.
func TestAWorkerStoppedInARemovalLeavesTheHomeOfALaterAttemptAlone(t *testing.T) {
	t.Parallel()
	scratch := t.TempDir()
	worker, said := startRole(t, "", "closer", scratch)
	line, err := said.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "closing\n", line)
	rollout := job("closer").Address.RolloutID
	moved := func() bool {
		_, err := os.Stat(filepath.Join(scratch, "closer+train-3+17+2"))
		return err != nil
	}
	require.Eventually(t, moved, time.Minute, time.Millisecond)
	require.NoError(t, worker.Process.Signal(syscall.SIGSTOP))

	later, err := process.OpenHome(t.Context(), scratch, process.Owner{Attempt: 2}, rollout)
	require.NoError(t, err)
	require.NoError(t, worker.Process.Signal(syscall.SIGCONT))
	line, err = said.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "<nil>\n", line)
	require.DirExists(t, filepath.Join(later.Path, "tmp"))
	require.NoError(t, later.Close())
	left, err := os.ReadDir(scratch)
	require.NoError(t, err)
	require.Empty(t, left)
}

// A worker may stop at the moment when its shim runs and is not yet on record.
func TestNoAgentStartsThatALaterAttemptCouldNotEnd(t *testing.T) {
	t.Parallel()
	scratch, rollout := t.TempDir(), job("demo").Address.RolloutID
	started := filepath.Join(t.TempDir(), "started")
	home, err := process.OpenHome(t.Context(), scratch, process.Owner{Attempt: 1}, rollout)
	require.NoError(t, err)
	shim, err := process.Start([]string{"touch", started}, process.Terms{}, home, func(*exec.Cmd) {})
	require.NoError(t, err)
	later, err := process.OpenHome(t.Context(), scratch, process.Owner{Attempt: 2}, rollout)
	require.NoError(t, err, "no shim is on record that would have to end first")
	require.ErrorContains(t, home.Record(shim), "a later attempt took")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = shim.Wait(ended)
	require.ErrorContains(t, err, "first report")
	require.NoFileExists(t, started)
	require.NoError(t, home.Close())
	require.NoError(t, later.Close())
}

func TestEarlierAttemptDoesNotGetTheHomeOfALaterOne(t *testing.T) {
	t.Parallel()
	w := newLiveness(t)
	c := agent.Command{Args: acting("hang"), Scratch: t.TempDir()}
	j := job("demo")
	j.Address.Attempt, j.Environment = 2, w.environment()
	ctx, cancel := context.WithCancel(t.Context())
	later := start(ctx, c, j)
	w.await(t, 1)
	_, err := c.Launch(t.Context(), job("demo"))
	require.ErrorIs(t, err, record.ErrFenced)
	cancel()
	require.ErrorIs(t, (<-later).err, context.Canceled)
}

func TestHomeOfAnEqualOrAForeignAttemptIsWaitedForInVain(t *testing.T) {
	t.Parallel()
	w := newLiveness(t)
	c := agent.Command{Args: acting("hang"), Scratch: t.TempDir()}
	j := job("demo")
	j.Execution, j.Environment = "one", w.environment()
	ctx, cancel := context.WithCancel(t.Context())
	one := start(ctx, c, j)
	w.await(t, 1)
	foreign := job("demo") // a run of the same name, in another store
	foreign.Execution, foreign.Address.Attempt = "another", 7
	for _, l := range []<-chan launched{start(t.Context(), c, j), start(t.Context(), c, foreign)} {
		require.ErrorContains(t, (<-l).err, "another attempt still holds")
	}
	cancel()
	require.ErrorIs(t, (<-one).err, context.Canceled, "until then it ran")
}
