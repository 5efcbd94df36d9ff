package agent_test

import (
	"encoding/json"
	"fmt"
	"net"
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
	i.Container = &agent.Container{Image: image.ID, Name: image.Name}
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
	image := containertest.New(t)
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
}

func TestAnAgentInAContainerSeesNothingOfTheMachineAndWritesOnlyItsHome(t *testing.T) {
	t.Parallel()
	image := containertest.New(t)
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
	image.RequireNone(t)
}

func TestAnAgentInAContainerSeesTheSameEnvironment(t *testing.T) {
	t.Parallel()
	image := containertest.New(t)
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
	require.Equal(t, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", got["PATH"], "it is not the worker's")
	delete(want, "PATH")
	delete(got, "PATH")
	want["IMAGE_SAYS"] = "hello"
	require.Empty(t, cmp.Diff(want, got))
}

func TestAnAgentInAContainerIsBounded(t *testing.T) {
	t.Parallel()
	image := containertest.New(t)
	of := func(limits agent.Limits, i agent.Isolation, environment map[string]string, role ...string) agent.Result {
		j := job("bounded-" + role[0])
		j.Limits, j.Environment = limits, environment
		j.Limits.Time = containertest.Limit
		got := <-start(t.Context(), contained(t, image, i, role...), j)
		require.NoError(t, got.err)
		image.RequireNone(t)
		return got.result
	}
	bomb := of(agent.Limits{Processes: 60}, agent.Isolation{}, nil, "bomb")
	require.Equal(t, agent.ProcessLimit, bomb.Failure, bomb)
	require.Equal(t, agent.CPULimit, of(agent.Limits{CPU: 200 * time.Millisecond}, agent.Isolation{}, nil, "work").Failure)
	w := newPatientLiveness(t, containertest.Limit)
	eaten := of(agent.Limits{MemoryBytes: 128 << 20}, agent.Isolation{Reach: []string{w.listener.Addr().String()}}, w.environment(), "eat", "4", "48")
	require.Equal(t, agent.MemoryLimit, eaten.Failure, eaten)
	require.Equal(t, agent.OutputLimit, of(agent.Limits{OutputBytes: 1 << 20}, agent.Isolation{}, nil, "flood").Failure)
	j := job("files")
	j.Limits.FileBytes, j.Limits.Processes = 1<<20, 100
	maxima := []string{"read /sys/fs/cgroup/pids/pids.max", "read /sys/fs/cgroup/pids.max"} // of both versions of control groups
	out := triedInside(t, image, agent.Isolation{}, j, append(maxima, "big 1048576", "big 1048577")...)
	require.Contains(t, []string{out[maxima[0]], out[maxima[1]]}, "132\n", "100, and those of the first process")
	require.Equal(t, "done", out["big 1048576"])
	require.Contains(t, out["big 1048577"], "file too large")
}

func TestAnAgentInAContainerEndsAsAnyOther(t *testing.T) {
	t.Parallel()
	image := containertest.New(t)
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
	image.RequireNone(t)
}

func TestAnAgentInAContainerIsEndedAtItsTime(t *testing.T) {
	t.Parallel()
	image := containertest.New(t)
	for _, role := range []string{"hang", "stubborn"} {
		w := newPatientLiveness(t, containertest.Limit)
		j := job("time-" + role)
		j.Environment, j.Limits.Time = w.environment(), time.Millisecond
		var up atomic.Bool
		j.Waited = heldUntil(&up)
		end := start(t.Context(), contained(t, image, agent.Isolation{Reach: []string{w.listener.Addr().String()}}, role), j)
		living := w.await(t, 1)
		up.Store(true)
		require.Equal(t, agent.Timeout, (<-end).result.Failure)
		living[role].requireDead(t)
		image.RequireNone(t)
	}
}

// workerWithAContainer starts a worker whose agent runs in a container until it is ended.
func workerWithAContainer(t *testing.T, image containertest.Image) (worker *exec.Cmd, scratch string, living map[string]alive) {
	t.Helper()
	w, scratch := newPatientLiveness(t, containertest.Limit), t.TempDir()
	args := acting("worker", scratch)
	worker = exec.Command(args[0], args[1:]...)
	worker.Env = append(os.Environ(), "LIVENESS="+w.listener.Addr().String(), "ISOLATED=1", "IMAGE="+image.ID)
	require.NoError(t, worker.Start())
	t.Cleanup(func() { _, _ = worker.Process.Kill(), worker.Wait() })
	return worker, scratch, w.await(t, 1)
}

func TestADeadWorkerLeavesNoContainer(t *testing.T) {
	t.Parallel()
	image := containertest.New(t)
	worker, _, living := workerWithAContainer(t, image)
	require.Equal(t, 1, image.Containers(t))
	require.NoError(t, worker.Process.Kill())
	living["remain"].requireDead(t)
	image.RequireNone(t)
}

// A worker that does not run can't end the agent of a shim that has died.
func TestADeadShimOfAStoppedWorkerLeavesNoContainer(t *testing.T) {
	t.Parallel()
	image := containertest.New(t)
	worker, scratch, _ := workerWithAContainer(t, image)
	require.NoError(t, worker.Process.Signal(syscall.SIGSTOP))
	require.NoError(t, syscall.Kill(shimOf(t, scratch), syscall.SIGKILL))
	image.RequireNone(t)
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
	image := containertest.New(t)
	w := newPatientLiveness(t, containertest.Limit)
	c := contained(t, image, agent.Isolation{Reach: []string{w.listener.Addr().String()}}, "remain")
	j := job("shim")
	j.Environment = w.environment()
	end := start(t.Context(), c, j)
	w.await(t, 1)
	require.Equal(t, 1, image.Labelled(t, "fulgurite.attempt="+j.Address.String()))
	require.NoError(t, syscall.Kill(shimOf(t, c.Scratch), syscall.SIGKILL))
	require.Error(t, (<-end).err)
	image.RequireNone(t)
}

func TestALaterAttemptRemovesTheContainerOfAnEarlierOne(t *testing.T) {
	t.Parallel()
	image := containertest.New(t)
	c := contained(t, image, agent.Isolation{}, "echo")
	j := job("retry")
	home := filepath.Join(c.Scratch, "retry+train-3+17+2")
	name, err := container.Name(home)
	require.NoError(t, err)
	image.Create(t, "--name", name, "--label", "left=over")
	got := <-start(t.Context(), c, j)
	require.NoError(t, got.err)
	require.Equal(t, "6*7", got.result.Text)
	require.Zero(t, image.Labelled(t, "left=over"))
	image.RequireNone(t)
}

// labelled returns the options that give a container the labels of an attempt with a home,
// with some of them changed.
func labelled(t *testing.T, home string, changed ...string) []string {
	t.Helper()
	labels, err := container.Labels("demo/train-1/2/3/4", home)
	require.NoError(t, err)
	var options []string
	for _, label := range append(labels, changed...) {
		options = append(options, "--label", label)
	}
	return options
}

func TestAContainerThatNobodyUsesIsRemoved(t *testing.T) {
	t.Parallel()
	image := containertest.New(t)
	used, err := process.OpenHome(t.Context(), t.TempDir(), process.Owner{Attempt: 1}, job("used").Address.RolloutID)
	require.NoError(t, err)
	t.Cleanup(func() { _ = used.Close() })
	scratch := t.TempDir()
	for name, one := range map[string]struct {
		options []string
		stays   bool
	}{
		"left":           {options: labelled(t, scratch+"/left")},
		"used":           {options: labelled(t, used.Path), stays: true},
		"another /tmp":   {options: labelled(t, scratch+"/unseen", "fulgurite.scratch=1:2"), stays: true},
		"no directory":   {options: labelled(t, scratch+"/gone", "fulgurite.home="+scratch+"/no/home"), stays: true},
		"earlier start":  {options: labelled(t, used.Path, "fulgurite.boot=earlier")},
		"another host":   {options: labelled(t, scratch+"/other", "fulgurite.host=other"), stays: true},
		"no attempt":     {stays: true},
		"of another use": {options: []string{"--label", "fulgurite.tasks=harbor", "--label", "fulgurite.home=" + scratch}, stays: true},
	} {
		id := image.Create(t, one.options...)
		_, err = image.Podman.RemoveAbandoned(t.Context(), process.InUse)
		require.NoError(t, err)
		left := image.Run(t, "ps", "--all", "--quiet", "--no-trunc", "--filter", "id="+id)
		require.Equal(t, one.stays, left != "", name)
	}
}

func TestAContainerOfNoAttemptHasNoLabels(t *testing.T) {
	t.Parallel()
	labels, err := container.Labels("", t.TempDir())
	require.NoError(t, err)
	require.Empty(t, labels)
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
	image := containertest.New(t)
	c := contained(t, image, agent.Isolation{}, "echo")
	other := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	c.Isolation.Container.Image = other
	got := <-start(t.Context(), c, job("image"))
	require.ErrorIs(t, got.err, agent.ErrNotStarted)
	require.ErrorContains(t, got.err, fmt.Sprintf("agent.sandbox: container: this machine can't isolate a program: podman has no image %s, which the run recorded for agent.image %s; here that name means ",
		other, image.Name))
	require.ErrorContains(t, got.err, strings.TrimPrefix(image.ID, "sha256:"))
}

func TestAPathThatAContainerCannotShowIsRefused(t *testing.T) {
	t.Parallel()
	image := containertest.New(t)
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
}

func TestAWorkerWithoutTheProgramForContainersRunsNoAttempt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	c := agent.Command{Args: []string{"agent"}, Scratch: t.TempDir(), Isolation: &agent.Isolation{Container: &agent.Container{Image: "x", Name: "x"}}}
	got := <-start(t.Context(), c, job("program"))
	require.ErrorIs(t, got.err, agent.ErrNotStarted)
	require.ErrorContains(t, got.err, "there is no program podman")
}

func TestADirectoryWithAFileSystemThatAContainerCouldWriteIsRefused(t *testing.T) {
	t.Parallel()
	image := containertest.New(t)
	work := t.TempDir()
	must(os.Chmod(work, 0o755)) //nolint:gosec // another user has to read it
	other := filepath.Join(work, "other disk")
	must(os.Mkdir(other, 0o755)) //nolint:gosec // as before
	require.NoError(t, unix.Mount("tmpfs", other, "tmpfs", 0, "size=64k,mode=777"))
	t.Cleanup(func() { _ = unix.Unmount(other, unix.MNT_DETACH) })
	must(os.WriteFile(filepath.Join(other, "file"), []byte("text"), 0o644)) //nolint:gosec // as before
	j := job("mounts")
	j.Directory = work
	got := <-start(t.Context(), contained(t, image, agent.Isolation{}, "echo"), j)
	require.ErrorIs(t, got.err, agent.ErrNotStarted)
	require.ErrorContains(t, got.err, other+" is a file system of its own below agent.directory")
	require.Equal(t, "done", triedInside(t, image, agent.Isolation{Writable: []string{"other disk"}}, j, "write "+other+"/new")["write "+other+"/new"])
	require.NoError(t, os.RemoveAll(filepath.Join(other, "new")))
	out := triedInside(t, image, agent.Isolation{Hidden: []string{other}}, j, "list "+other, "write "+other+"/new")
	require.Empty(t, out["list "+other])
	require.Contains(t, out["write "+other+"/new"], "error: ")
	require.NoError(t, unix.Mount("", other, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	out = triedInside(t, image, agent.Isolation{}, j, "read "+other+"/file", "write "+other+"/new")
	require.Equal(t, "text", out["read "+other+"/file"])
	require.Contains(t, out["write "+other+"/new"], "error: ")
}

func TestAHomeThatAnAgentInAContainerCannotReachIsRefused(t *testing.T) {
	t.Parallel()
	image := containertest.New(t)
	work := t.TempDir()
	must(os.Chmod(work, 0o755)) //nolint:gosec // another user has to read it
	c := contained(t, image, agent.Isolation{}, "attempts", "write "+work+"/scratch/home+train-3+17+2/new", "write "+work+"/scratch/new")
	c.Scratch = filepath.Join(work, "scratch")
	j := job("home")
	j.Directory = work
	got := <-start(t.Context(), c, j)
	require.ErrorIs(t, got.err, agent.ErrNotStarted)
	require.ErrorContains(t, got.err, "can't reach its home "+c.Scratch)
	must(os.Chmod(c.Scratch, 0o755)) //nolint:gosec // as before
	got = <-start(t.Context(), c, j)
	require.NoError(t, got.err)
	var out map[string]string
	require.NoError(t, json.Unmarshal([]byte(got.result.Text), &out), got.result)
	require.Equal(t, "done", out["write "+work+"/scratch/home+train-3+17+2/new"])
	require.Contains(t, out["write "+work+"/scratch/new"], "error: ")
}

func TestAnAgentInAContainerReachesAModelThatHasOnlyAnAddress(t *testing.T) {
	t.Parallel()
	image := containertest.New(t)
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	host := "192.0.2.1" // of no machine, so nothing answers there
	for _, one := range addresses {
		if n, ok := one.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			host = n.IP.String()
		}
	}
	at := "9"
	if host != "192.0.2.1" {
		at = port(echoServer(t, "tcp", host+":0", "model"))
	}
	j := job("address")
	j.BaseURL = "http://" + host + ":" + at + "/r/x/v1"
	named := "model.fulgurite.internal:" + at
	out := triedInside(t, image, agent.Isolation{}, j, "variable OPENAI_BASE_URL", "dial "+named)
	require.Equal(t, "http://"+named+"/r/x/v1", out["variable OPENAI_BASE_URL"])
	if host != "192.0.2.1" {
		require.Equal(t, "model ping", out["dial "+named])
	}
	j.BaseURL = "https://" + host + ":" + at + "/r/x/v1"
	got := <-start(t.Context(), contained(t, image, agent.Isolation{}, "echo"), j)
	require.ErrorContains(t, got.err, "announce the gateway by a name")
}

// configured lets podman read a configuration in place of the machine's.
func configured(t *testing.T, text string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "containers.conf")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	t.Setenv("CONTAINERS_CONF", path)
}

func TestAnAgentInAContainerHasNoVariablesOfPodmansConfiguration(t *testing.T) {
	image := containertest.New(t)
	configured(t, "[containers]\nenv = [\"HTTP_PROXY=http://proxy.example\", \"no_proxy=example\", \"IMAGE_SAYS=other\"]\nhttp_proxy = true\n")
	t.Setenv("HTTPS_PROXY", "http://proxy.example")
	variables := []string{"variable HTTP_PROXY", "variable HTTPS_PROXY", "variable no_proxy"}
	out := triedInside(t, image, agent.Isolation{}, job("proxies"), append(variables, "variable IMAGE_SAYS")...)
	for _, name := range variables {
		require.Contains(t, out[name], "error: ")
	}
	require.Equal(t, "hello", out["variable IMAGE_SAYS"])
}

func TestAContainerWithoutAFilterOfSystemCallsIsRefused(t *testing.T) {
	image := containertest.New(t)
	configured(t, "[containers]\nseccomp_profile = \"unconfined\"\n")
	got := <-start(t.Context(), contained(t, image, agent.Isolation{}, "echo"), job("filter"))
	require.ErrorIs(t, got.err, agent.ErrNotStarted)
	require.ErrorContains(t, got.err, "podman filters no system calls in the container")
}
