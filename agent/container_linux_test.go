package agent_test

import (
	"context"
	"encoding/json"
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

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/container"
	"github.com/fulgurite/fulgurite/agent/process"
	"github.com/fulgurite/fulgurite/internal/containertest"
)

// contained returns a command in a container, in one of the roles of this binary.
func contained(t *testing.T, image containertest.Image, i agent.Isolation, role ...string) agent.Command {
	t.Helper()
	i.Container = &agent.Container{Program: image.Engine.Program, Image: image.ID, Name: image.Name}
	return agent.Command{Args: append([]string{"agent", "play"}, role...), Scratch: t.TempDir(), Isolation: &i}
}

// triedInside returns what came of each try of an agent in a container.
func triedInside(t *testing.T, image containertest.Image, i agent.Isolation, j agent.Job, tries ...string) map[string]string {
	t.Helper()
	got := <-start(t.Context(), contained(t, image, i, append([]string{"attempts"}, tries...)...), j)
	require.NoError(t, got.err)
	require.False(t, got.result.Failed(), "%+v", got.result)
	var out map[string]string
	require.NoError(t, json.Unmarshal([]byte(got.result.Text), &out), got.result.Output)
	return out
}

func TestAnAgentInAContainerReachesItsModelAndItsServersAndNothingElse(t *testing.T) {
	t.Parallel()
	containertest.Each(t, func(t *testing.T, image containertest.Image) {
		model, tools, named, other := echoServer(t, "tcp", "127.0.0.1:0", "model"), echoServer(t, "tcp", "127.0.0.1:0", "tools"),
			echoServer(t, "tcp", "127.0.0.1:0", "named"), echoServer(t, "tcp", "127.0.0.1:0", "other")
		counted := countServer(t)
		j := job("network")
		j.BaseURL = "http://" + model.Addr().String() + "/r/x/v1"
		i := agent.Isolation{Servers: []string{"http://" + tools.Addr().String() + "/healthz"}, Reach: []string{"localhost:" + port(named), "hub.example:443", counted.Addr().String()}}
		vsock := "socket " + strconv.Itoa(unix.AF_VSOCK)
		refused := []string{
			"dial " + other.Addr().String(), "dial localhost:" + port(other), "dial 192.0.2.8:9", "dial [::1]:" + port(model), "lookup elsewhere.example", vsock,
			"call " + strconv.Itoa(unix.SYS_IO_URING_SETUP), "call " + strconv.Itoa(unix.SYS_KEYCTL),
		}
		out := triedInside(t, image, i, j, append(refused, "dial "+model.Addr().String(), "dial "+tools.Addr().String(), "dial localhost:"+port(named),
			"lookup hub.example", "read /etc/hosts", "send "+counted.Addr().String())...)
		require.Equal(t, "model ping", out["dial "+model.Addr().String()])
		require.Equal(t, "tools ping", out["dial "+tools.Addr().String()])
		require.Equal(t, "named ping", out["dial localhost:"+port(named)])
		require.Equal(t, "3000000", out["send "+counted.Addr().String()], "the end of what it sends is passed on")
		require.Equal(t, "done", out["lookup hub.example"])
		require.Contains(t, out["read /etc/hosts"], "127.0.64.1 hub.example\n")
		for _, try := range refused {
			require.Contains(t, out[try], "error: ", try)
			require.NotContains(t, out[try], "i/o timeout", "it fails at once: %s", try)
			require.NotContains(t, out[try], "it took", "it fails at once: %s", try)
		}
	})
}

func TestAnAgentInAContainerSeesNothingOfTheMachineAndWritesOnlyItsHome(t *testing.T) {
	t.Parallel()
	containertest.Each(t, func(t *testing.T, image containertest.Image) {
		work, elsewhere := t.TempDir(), t.TempDir()
		for name, text := range map[string]string{"code.py": "code", "tasks.jsonl": "answers", "state/store.db": "answers", "logs/old": "old"} {
			must(os.MkdirAll(filepath.Join(work, filepath.Dir(name)), 0o755))  //nolint:gosec // another user has to read it
			must(os.WriteFile(filepath.Join(work, name), []byte(text), 0o644)) //nolint:gosec // as before
		}
		must(os.WriteFile(filepath.Join(elsewhere, "note"), []byte("note"), 0o644)) //nolint:gosec // as before
		must(os.Chmod(filepath.Join(work, "logs"), 0o777))                          //nolint:gosec // as before
		must(os.Chmod(work, 0o755))                                                 //nolint:gosec // as before
		other := exec.Command("/bin/sleep", "600")
		other.Env = []string{"SECRET=secret-of-another"}
		require.NoError(t, other.Start())
		t.Cleanup(func() { _, _ = other.Process.Kill(), other.Wait() })
		pid := strconv.Itoa(other.Process.Pid)
		allowed := []string{"write " + work + "/logs/log", "write /dev/null", "write /dev/stderr", "write /tmp/mine", "write /var/tmp/mine", "write /dev/shm/mine"}
		refused := []string{
			"write " + work + "/code.py", "write " + work + "/new", "read " + work + "/state/store.db", "write " + work + "/state/x", "read " + elsewhere + "/note",
			"write /etc/fulgurite-test", "write /usr/bin/agent", "write /new", "write " + containertest.Writable + "/new", "write /fulgurite/program", "write /fulgurite/control/new", "write " + work + "/tasks.jsonl",
			"write /proc/sys/kernel/core_pattern", "read /etc/shadow", "node /tmp/disk", "remount /", "remount " + work, "unmount " + work + "/state", "unmount /proc",
			"namespace", "unix /fulgurite/control/socket", "unix /run/podman/podman.sock", "unix /var/run/docker.sock", "environs secret-of-another", "trace 1",
			"kill " + pid, "list /fulgurite/control", "read /proc/1/environ", "trace " + pid,
		}
		j := job("files")
		j.Directory = work
		i := agent.Isolation{Hidden: []string{filepath.Join(work, "state"), filepath.Join(work, "tasks.jsonl")}, Writable: []string{"logs"}}
		out := triedInside(t, image, i, j, append(append(allowed, refused...), "read "+work+"/code.py", "read "+work+"/tasks.jsonl", "list "+work+"/state",
			"rights", "uid", "files", "pids", "list /")...)
		for _, try := range allowed {
			require.Equal(t, "done", out[try], try)
		}
		for _, try := range refused {
			require.Contains(t, out[try], "error: ", try)
		}
		require.Equal(t, "code", out["read "+work+"/code.py"])
		require.Equal(t, "", out["read "+work+"/tasks.jsonl"])
		require.Equal(t, "", out["list "+work+"/state"])
		require.Equal(t, "2", out["pids"], "its own, and the first one of the container")
		require.Equal(t, "CapInh:0000000000000000 CapPrm:0000000000000000 CapEff:0000000000000000 CapBnd:0000000000000000 CapAmb:0000000000000000 NoNewPrivs:1", out["rights"])
		require.NotEqual(t, "0", out["uid"])
		require.Equal(t, "4096", out["files"])
		require.NotContains(t, strings.Fields(out["list /"]), "root")
		require.FileExists(t, filepath.Join(work, "logs", "log"))
		require.NoFileExists(t, "/tmp/mine")
		require.Zero(t, image.Containers(t))
	})
}

func TestAnAgentInAContainerSeesTheSameEnvironment(t *testing.T) {
	t.Parallel()
	containertest.Each(t, func(t *testing.T, image containertest.Image) {
		scratch := t.TempDir()
		of := func(c agent.Command) map[string]string {
			j := job("environment")
			j.Environment = map[string]string{"MODE": "fast", "LINES": "a\nb"}
			got := <-start(t.Context(), c, j)
			require.NoError(t, got.err)
			var lines []string
			require.NoError(t, json.Unmarshal([]byte(got.result.Text), &lines), got.result)
			out := map[string]string{}
			for _, l := range lines {
				name, value, _ := strings.Cut(l, "=")
				out[name] = value
			}
			return out
		}
		want := of(agent.Command{Args: acting("surroundings"), Scratch: scratch})
		c := contained(t, image, agent.Isolation{}, "surroundings")
		c.Scratch = scratch
		got := of(c)
		require.NotEqual(t, want["PATH"], got["PATH"]+"x")
		require.Contains(t, got["PATH"], "/usr/bin", "it is the image's")
		delete(want, "PATH")
		delete(got, "PATH")
		want["IMAGE_SAYS"] = "hello"
		require.Empty(t, cmp.Diff(want, got))
	})
}

func TestAnAgentInAContainerIsBounded(t *testing.T) {
	t.Parallel()
	containertest.Each(t, func(t *testing.T, image containertest.Image) {
		of := func(limits agent.Limits, i agent.Isolation, environment map[string]string, role ...string) agent.Result {
			j := job("bounded-" + role[0])
			j.Limits, j.Environment = limits, environment
			j.Limits.Time = testTimeout
			got := <-start(t.Context(), contained(t, image, i, role...), j)
			require.NoError(t, got.err)
			require.Zero(t, image.Containers(t))
			return got.result
		}
		bomb := of(agent.Limits{Processes: 60}, agent.Isolation{}, nil, "bomb")
		require.Equal(t, agent.ProcessLimit, bomb.Failure, bomb)
		require.Equal(t, agent.CPULimit, of(agent.Limits{CPU: 200 * time.Millisecond}, agent.Isolation{}, nil, "work").Failure)
		w := newLiveness(t)
		eaten := of(agent.Limits{MemoryBytes: 128 << 20}, agent.Isolation{Reach: []string{w.listener.Addr().String()}}, w.environment(), "eat", "4", "48")
		require.Equal(t, agent.MemoryLimit, eaten.Failure, eaten)
		require.Equal(t, agent.OutputLimit, of(agent.Limits{OutputBytes: 1 << 20}, agent.Isolation{}, nil, "flood").Failure)
		j := job("files")
		j.Limits.FileBytes = 1 << 20
		out := triedInside(t, image, agent.Isolation{}, j, "big 1048576", "big 1048577")
		require.Equal(t, "done", out["big 1048576"])
		require.Contains(t, out["big 1048577"], "file too large")
	})
}

func TestAnAgentInAContainerEndsAsAnyOther(t *testing.T) {
	t.Parallel()
	containertest.Each(t, func(t *testing.T, image containertest.Image) {
		j := job("ends")
		of := func(role ...string) agent.Result {
			got := <-start(t.Context(), contained(t, image, agent.Isolation{}, role...), j)
			require.NoError(t, got.err)
			return got.result
		}
		require.Equal(t, launch(t, j, "echo"), of("echo"))
		require.Equal(t, launch(t, j, "exit", "7"), of("exit", "7"))
		require.Equal(t, launch(t, j, "suicide"), of("suicide"))
		require.Empty(t, of("descriptors").Text, "it inherits nothing of its shim and the container")
		c := contained(t, image, agent.Isolation{})
		c.Args = []string{"no-such-program"}
		got := <-start(t.Context(), c, j)
		require.ErrorIs(t, got.err, agent.ErrNotStarted)
		require.ErrorContains(t, got.err, "no-such-program")
		require.Zero(t, image.Containers(t))
	})
}

func TestAnAgentInAContainerIsEndedAtItsTime(t *testing.T) {
	t.Parallel()
	containertest.Each(t, func(t *testing.T, image containertest.Image) {
		for _, role := range []string{"hang", "stubborn"} {
			w := newLiveness(t)
			j := job("time-" + role)
			j.Environment, j.Limits.Time = w.environment(), time.Millisecond
			var up atomic.Bool
			j.Waited = heldUntil(&up)
			end := start(t.Context(), contained(t, image, agent.Isolation{Reach: []string{w.listener.Addr().String()}}, role), j)
			living := w.await(t, 1)
			up.Store(true)
			require.Equal(t, agent.Timeout, (<-end).result.Failure)
			living[role].requireDead(t)
			require.Zero(t, image.Containers(t))
		}
	})
}

// workerWithAContainer starts a worker whose agent runs in a container until it is ended.
func workerWithAContainer(t *testing.T, image containertest.Image) (worker *exec.Cmd, scratch string, living map[string]alive) {
	t.Helper()
	w, scratch := newLiveness(t), t.TempDir()
	args := acting("worker", scratch)
	worker = exec.Command(args[0], args[1:]...)
	worker.Env = append(os.Environ(), "LIVENESS="+w.listener.Addr().String(), "ISOLATED=1", "CONTAINED="+image.Engine.Program, "IMAGE="+image.ID)
	require.NoError(t, worker.Start())
	t.Cleanup(func() { _, _ = worker.Process.Kill(), worker.Wait() })
	return worker, scratch, w.await(t, 1)
}

func TestADeadWorkerLeavesNoContainer(t *testing.T) {
	t.Parallel()
	containertest.Each(t, func(t *testing.T, image containertest.Image) {
		worker, _, living := workerWithAContainer(t, image)
		require.Equal(t, 1, image.Containers(t))
		require.NoError(t, worker.Process.Kill())
		living["remain"].requireDead(t)
		require.Eventually(t, func() bool { return image.Containers(t) == 0 }, testTimeout, 50*time.Millisecond)
	})
}

// A worker that does not run can't end the agent of a shim that has died.
func TestADeadShimOfAStoppedWorkerLeavesNoContainer(t *testing.T) {
	t.Parallel()
	containertest.Each(t, func(t *testing.T, image containertest.Image) {
		worker, scratch, _ := workerWithAContainer(t, image)
		require.NoError(t, worker.Process.Signal(syscall.SIGSTOP))
		require.NoError(t, syscall.Kill(shimOf(t, scratch), syscall.SIGKILL))
		require.Eventually(t, func() bool { return image.Containers(t) == 0 }, testTimeout, 50*time.Millisecond)
	})
}

// shimOf returns the process id of the shim of the only attempt below a scratch directory.
func shimOf(t *testing.T, scratch string) int {
	t.Helper()
	locks, err := filepath.Glob(filepath.Join(scratch, "*.lock"))
	require.NoError(t, err)
	require.Len(t, locks, 1)
	text, err := os.ReadFile(locks[0])
	require.NoError(t, err)
	var owner process.Owner
	require.NoError(t, json.Unmarshal(text, &owner))
	return owner.Shim
}

func TestADeadShimLeavesNoContainer(t *testing.T) {
	t.Parallel()
	containertest.Each(t, func(t *testing.T, image containertest.Image) {
		w := newLiveness(t)
		c := contained(t, image, agent.Isolation{Reach: []string{w.listener.Addr().String()}}, "remain")
		j := job("shim")
		j.Environment = w.environment()
		end := start(t.Context(), c, j)
		w.await(t, 1)
		require.Equal(t, 1, image.Labelled(t, "fulgurite.attempt="+j.Address.String()))
		require.NoError(t, syscall.Kill(shimOf(t, c.Scratch), syscall.SIGKILL))
		require.Error(t, (<-end).err)
		require.Eventually(t, func() bool { return image.Containers(t) == 0 }, testTimeout, 50*time.Millisecond)
	})
}

func TestALaterAttemptRemovesTheContainerOfAnEarlierOne(t *testing.T) {
	t.Parallel()
	containertest.Each(t, func(t *testing.T, image containertest.Image) {
		c := contained(t, image, agent.Isolation{}, "echo")
		j := job("retry")
		home := filepath.Join(c.Scratch, "retry+train-3+17+2")
		image.Run(t, "create", "--name", container.Name(home), "--label", "left=over", image.ID, "agent")
		got := <-start(t.Context(), c, j)
		require.NoError(t, got.err)
		require.Equal(t, "6*7", got.result.Text)
		require.Zero(t, image.Labelled(t, "left=over"))
		require.Zero(t, image.Containers(t))
	})
}

func TestAContainerThatNobodyUsesIsRemoved(t *testing.T) {
	t.Parallel()
	containertest.Each(t, func(t *testing.T, image containertest.Image) {
		used, err := process.OpenHome(t.Context(), t.TempDir(), process.Owner{Attempt: 1}, job("used").Address.RolloutID)
		require.NoError(t, err)
		t.Cleanup(func() { _ = used.Close() })
		left := filepath.Join(t.TempDir(), "home")
		for _, home := range []string{left, used.Path} {
			args := []string{"create"}
			for _, label := range container.Labels("demo/train-1/2/3/4", home) {
				args = append(args, "--label", label)
			}
			id := strings.TrimSpace(image.Run(t, append(args, image.ID, "agent")...))
			t.Cleanup(func() { _ = image.Engine.Remove(context.WithoutCancel(t.Context()), id) })
		}
		require.Equal(t, 1, image.Labelled(t, "fulgurite.home="+used.Path))
		_, err = image.Engine.RemoveAbandoned(t.Context(), process.InUse)
		require.NoError(t, err)
		require.Zero(t, image.Labelled(t, "fulgurite.home="+left))
		require.Equal(t, 1, image.Labelled(t, "fulgurite.home="+used.Path))
	})
}

func TestAHomeIsInUseWhileAnAttemptHasIt(t *testing.T) {
	t.Parallel()
	scratch := t.TempDir()
	home, err := process.OpenHome(t.Context(), scratch, process.Owner{Attempt: 1}, job("used").Address.RolloutID)
	require.NoError(t, err)
	require.True(t, process.InUse(home.Path))
	require.NoError(t, home.Close())
	require.False(t, process.InUse(home.Path))
}

func TestAWorkerWithoutTheImageRunsNoAttempt(t *testing.T) {
	t.Parallel()
	containertest.Each(t, func(t *testing.T, image containertest.Image) {
		c := contained(t, image, agent.Isolation{}, "echo")
		other := "sha256:" + strings.Repeat("0123456789abcdef", 4)
		c.Isolation.Container.Image = other
		got := <-start(t.Context(), c, job("image"))
		require.ErrorIs(t, got.err, agent.ErrNotStarted)
		require.ErrorContains(t, got.err, fmt.Sprintf("agent.sandbox: container: this machine can't isolate a program: %s has no image %s, which the run recorded for agent.image %s; here that name means ",
			image.Engine.Program, other, image.Name))
		require.ErrorContains(t, got.err, strings.TrimPrefix(image.ID, "sha256:"))
	})
}

func TestAPathThatAContainerCannotShowIsRefused(t *testing.T) {
	t.Parallel()
	containertest.Each(t, func(t *testing.T, image containertest.Image) {
		work := t.TempDir()
		comma := filepath.Join(work, "a,b")
		must(os.Mkdir(comma, 0o700))
		for directory, want := range map[string]string{
			"/": "/ can't be shown in a container", comma: `a,b" can't be shown in a container`, work: work + " has to be visible and is hidden at the same time",
		} {
			j := job("shown")
			j.Directory = directory
			got := <-start(t.Context(), contained(t, image, agent.Isolation{Hidden: []string{work}}, "echo"), j)
			require.ErrorIs(t, got.err, agent.ErrNotStarted)
			require.ErrorContains(t, got.err, want)
		}
	})
}

func TestAWorkerWithoutTheProgramForContainersRunsNoAttempt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	c := agent.Command{Args: []string{"agent"}, Scratch: t.TempDir(), Isolation: &agent.Isolation{Container: &agent.Container{Program: container.Podman, Image: "x", Name: "x"}}}
	got := <-start(t.Context(), c, job("program"))
	require.ErrorIs(t, got.err, agent.ErrNotStarted)
	require.ErrorContains(t, got.err, "there is no program podman")
}
