package agent_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/container"
	"github.com/fulgurite/fulgurite/agent/process"
	"github.com/fulgurite/fulgurite/internal/containertest"
)

// slowPodman puts a program in the place of podman that calls it. Before or after each
// container, it waits until a file with the returned prefix and "go" exists. It notes its
// process and that it waits in files with the suffixes "pid" and "waits".
func slowPodman(t *testing.T, before bool) (prefix string) {
	t.Helper()
	podman, err := exec.LookPath(container.Program)
	require.NoError(t, err)
	directory := t.TempDir()
	prefix = filepath.Join(directory, "podman.")
	wait := fmt.Sprintf("echo $$ >%[1]spid\n>%[1]swaits\nwhile [ -e %[1]spid ] && [ ! -e %[1]sgo ]; do sleep 0.1; done\n", prefix)
	script := "#!/bin/sh\n[ \"$1\" = run ] || exec " + podman + " \"$@\"\n"
	if before {
		script += wait + "exec " + podman + " \"$@\"\n"
	} else {
		script += podman + " \"$@\"\ncode=$?\n" + wait + "exit $code\n"
	}
	require.NoError(t, os.WriteFile(filepath.Join(directory, container.Program), []byte(script), 0o700)) //nolint:gosec // a program
	t.Setenv("PATH", directory+":"+os.Getenv("PATH"))
	t.Cleanup(func() { must(os.WriteFile(prefix+"go", nil, 0o600)) })
	return prefix
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	require.Eventually(t, func() bool { _, err := os.Stat(path); return err == nil }, containertest.Limit, 20*time.Millisecond)
}

func TestTheEndOfAnAgentDoesNotDependOnTheRemovalOfItsContainer(t *testing.T) {
	image := containertest.New(t)
	prefix := slowPodman(t, false)
	var up atomic.Bool
	j := job("done")
	j.Limits.Time, j.Waited = time.Millisecond, heldUntil(&up)
	end := start(t.Context(), contained(t, image, agent.Isolation{}, "echo"), j)
	awaitFile(t, prefix+"waits")
	up.Store(true)
	got := <-end
	require.NoError(t, got.err)
	require.Equal(t, "6*7", got.result.Text, "it has ended in its time: %+v", got.result)

	w := newPatientLiveness(t, containertest.Limit)
	up.Store(false)
	j = job("late")
	j.Environment, j.Limits.Time, j.Waited = w.environment(), time.Millisecond, heldUntil(&up)
	end = start(t.Context(), contained(t, image, agent.Isolation{Reach: []string{w.listener.Addr().String()}}, "hang"), j)
	w.await(t, 1)
	up.Store(true)
	got = <-end
	require.NoError(t, got.err)
	require.Equal(t, agent.Timeout, got.result.Failure)
}

func TestAnAttemptThatIsEndedWhilePodmanStartsEndsPodman(t *testing.T) {
	image := containertest.New(t)
	prefix := slowPodman(t, true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	end := start(ctx, contained(t, image, agent.Isolation{}, "echo"), job("ended"))
	awaitFile(t, prefix+"waits")
	text, err := os.ReadFile(prefix + "pid")
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, (<-end).err, context.Canceled)
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	image.RequireNone(t)
}

func TestALaterAttemptDoesNotWaitForTheRemovalOfTheContainerOfADeadWorker(t *testing.T) {
	image := containertest.New(t)
	prefix := slowPodman(t, false)
	worker, scratch, _ := workerWithAContainer(t, image)
	require.NoError(t, worker.Process.Kill())
	awaitFile(t, prefix+"waits")
	home, err := process.OpenHome(t.Context(), scratch, process.Owner{Execution: "another", Attempt: 1}, job("worker").Address.RolloutID)
	require.NoError(t, err)
	require.NoError(t, home.Close())
	require.NoFileExists(t, prefix+"go", "podman has not ended")
}

func TestADeadPodmanLeavesNoContainer(t *testing.T) {
	t.Parallel()
	image := containertest.New(t)
	w := newPatientLiveness(t, containertest.Limit)
	c := contained(t, image, agent.Isolation{Reach: []string{w.listener.Addr().String()}}, "remain")
	j := job("podman")
	j.Environment = w.environment()
	end := start(t.Context(), c, j)
	living := w.await(t, 1)
	require.NoError(t, syscall.Kill(podmanOf(t, shimOf(t, c.Scratch)), syscall.SIGKILL))
	got := <-end
	require.NoError(t, got.err)
	require.Equal(t, agent.Killed, got.result.Failure)
	living["remain"].requireDead(t)
	image.RequireNone(t)
}

// podmanOf returns the process id of podman below a shim.
func podmanOf(t *testing.T, shim int) int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", shim))
	require.NoError(t, err)
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has just ended
		}
		for _, pid := range strings.Fields(string(text)) {
			line, err := os.ReadFile("/proc/" + pid + "/cmdline")
			if words := strings.Split(string(line), "\x00"); err == nil && filepath.Base(words[0]) == container.Program && len(words) > 1 && words[1] == "run" {
				n, err := strconv.Atoi(pid)
				require.NoError(t, err)
				return n
			}
		}
	}
	t.Fatalf("shim %d has started no podman", shim)
	return 0
}
