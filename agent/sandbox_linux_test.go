package agent_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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
	"golang.org/x/sys/unix"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/process"
	"github.com/fulgurite/fulgurite/agent/sandbox"
)

// needSandbox skips a test where the machine can't isolate.
func needSandbox(t *testing.T) {
	t.Helper()
	if err := sandbox.Check(t.Context()); err != nil {
		t.Skip(err)
	}
}

// isolated returns a command in a sandbox.
func isolated(t *testing.T, i agent.Isolation, role ...string) agent.Command {
	t.Helper()
	needSandbox(t)
	return agent.Command{Args: acting(role...), Scratch: t.TempDir(), Isolation: &i}
}

// tried returns what came of each try of an isolated agent.
func tried(t *testing.T, i agent.Isolation, j agent.Job, tries ...string) map[string]string {
	t.Helper()
	got := <-start(t.Context(), isolated(t, i, append([]string{"attempts"}, tries...)...), j)
	require.NoError(t, got.err)
	require.False(t, got.result.Failed(), "%+v", got.result)
	var out map[string]string
	require.NoError(t, json.Unmarshal([]byte(got.result.Text), &out), got.result.Output)
	return out
}

// echoServer answers each connection with a word and the line that it got.
func echoServer(t *testing.T, network, address, word string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(c).ReadString('\n')
			_, _ = c.Write([]byte(word + " " + line))
			_ = c.Close()
		}
	}()
	return l
}

// countServer answers each connection with the number of bytes that it got before their end.
func countServer(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n, _ := io.Copy(io.Discard, c)
			_, _ = fmt.Fprintln(c, n)
			_ = c.Close()
		}
	}()
	return l
}

func port(l net.Listener) string { return strconv.Itoa(l.Addr().(*net.TCPAddr).Port) }

// A worker may have been started with open files that are not closed at an exec.
func TestAnIsolatedAgentInheritsNoOpenFile(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	f, err := os.Open(outside)
	require.NoError(t, err)
	defer f.Close()
	high, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD, 900) // without close-on-exec, as from a supervisor
	require.NoError(t, err)
	defer unix.Close(high)
	out := tried(t, agent.Isolation{}, job("inherits"), "list /proc/self/fd")
	require.NotContains(t, out["list /proc/self/fd"], strconv.Itoa(high))
	require.Contains(t, out["list /proc/self/fd"], "0")
}

func TestAMachineThatCanMakeNamespacesCanIsolate(t *testing.T) {
	t.Parallel()
	if err := exec.Command("unshare", "-Urn", "true").Run(); err != nil {
		t.Skip("this machine makes no namespaces: ", err)
	}
	require.NoError(t, sandbox.Check(t.Context()))
}

func TestAnIsolatedAgentReachesItsModelAndItsServersAndNothingElse(t *testing.T) {
	t.Parallel()
	model, tools, named, other := echoServer(t, "tcp", "127.0.0.1:0", "model"), echoServer(t, "tcp", "127.0.0.1:0", "tools"),
		echoServer(t, "tcp", "127.0.0.1:0", "named"), echoServer(t, "tcp", "127.0.0.1:0", "other")
	counted := countServer(t)
	gone := echoServer(t, "tcp", "127.0.0.1:0", "gone")
	require.NoError(t, gone.Close())
	j := job("network")
	j.BaseURL = "http://" + model.Addr().String() + "/r/x/v1"
	vsock := "socket " + strconv.Itoa(unix.AF_VSOCK) // to the host of a virtual machine
	calls := []string{                               // io_uring makes such sockets, too, and the worker's keyrings are not the agent's
		"call " + strconv.Itoa(unix.SYS_IO_URING_SETUP), "call " + strconv.Itoa(unix.SYS_IO_URING_ENTER), "call " + strconv.Itoa(unix.SYS_KEYCTL),
	}
	i := agent.Isolation{Servers: []string{"http://" + tools.Addr().String() + "/healthz"}, Reach: []string{"localhost:" + port(named), gone.Addr().String(), "192.0.2.7:9", "hub.example:443", counted.Addr().String()}}
	out := tried(t, i, j, append(calls,
		"dial "+model.Addr().String(), "dial "+tools.Addr().String(), "dial localhost:"+port(named), "dial "+gone.Addr().String(),
		"dial "+other.Addr().String(), "dial localhost:"+port(other), "dial 192.0.2.7:10", "dial 192.0.2.8:9", "dial [::1]:"+port(model),
		"lookup hub.example", "lookup elsewhere.example", "read /etc/hosts", vsock, "send "+counted.Addr().String())...)
	for _, try := range calls {
		require.Contains(t, out[try], "function not implemented", try)
	}
	require.Equal(t, "3000000", out["send "+counted.Addr().String()], "the end of what it sends is passed on")
	require.Contains(t, out[vsock], "address family not supported")
	require.Equal(t, "model ping", out["dial "+model.Addr().String()])
	require.Equal(t, "tools ping", out["dial "+tools.Addr().String()])
	require.Equal(t, "named ping", out["dial localhost:"+port(named)])
	require.Equal(t, "done", out["lookup hub.example"])
	require.Contains(t, out["read /etc/hosts"], "127.0.64.1 hub.example\n")
	for _, try := range []string{
		"dial " + gone.Addr().String(), "dial " + other.Addr().String(), "dial localhost:" + port(other), "dial 192.0.2.7:10", "dial 192.0.2.8:9",
		"dial [::1]:" + port(model), "lookup elsewhere.example",
	} {
		require.Contains(t, out[try], "error: ", try)
		require.NotContains(t, out[try], "i/o timeout", "it fails at once: %s", try)
		require.NotContains(t, out[try], "it took", "it fails at once: %s", try)
	}
}

func TestAnIsolatedAgentSeesNoSecretsAndWritesOnlyItsHome(t *testing.T) {
	t.Parallel()
	work, state, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "state"), t.TempDir()
	must(os.MkdirAll(filepath.Join(state, "blobs"), 0o700))
	must(os.WriteFile(filepath.Join(state, "store.db"), []byte("answers"), 0o600))
	must(os.WriteFile(filepath.Join(work, "code.py"), []byte("code"), 0o600))
	must(os.WriteFile(filepath.Join(work, "tasks.jsonl"), []byte("answers"), 0o600))
	must(os.MkdirAll(filepath.Join(work, ".fulgurite"), 0o700))
	must(os.WriteFile(filepath.Join(work, ".fulgurite", "store.db"), []byte("answers"), 0o600))
	must(os.MkdirAll(filepath.Join(work, "logs"), 0o700))
	must(os.WriteFile(filepath.Join(elsewhere, "note"), []byte("note"), 0o600))
	socket := filepath.Join("/var/lib", "fulgurite-test-"+strconv.Itoa(os.Getpid())+".sock")
	tries := []string{
		"read " + work + "/code.py", "write " + work + "/code.py", "write " + work + "/new", "read " + work + "/tasks.jsonl", "list " + work + "/.fulgurite",
		"read " + work + "/.fulgurite/store.db", "write " + work + "/logs/log", "list " + state, "read " + state + "/store.db", "read " + elsewhere + "/note",
		"write /etc/fulgurite-test", "write /usr/bin/sh", "write /dev/null", "write /tmp/mine", "write /proc/sys/kernel/core_pattern", "write /proc/self/oom_score_adj",
		"read /etc/hostname", "list /run", "read /etc/shadow", "node /tmp/disk", "remount /", "remount " + work, "unmount " + state, "unmount /proc", "namespace",
		"rights", "uid", "environs secret-of-the-worker", "files",
	}
	if os.Getuid() == 0 {
		echoServer(t, "unix", socket, "engine")
		tries = append(tries, "unix "+socket)
	}
	j := job("files")
	j.Directory = work
	i := agent.Isolation{Hidden: []string{state, filepath.Join(work, ".fulgurite"), filepath.Join(work, "tasks.jsonl")}, Writable: []string{"logs"}}
	i.Hidden = append(i.Hidden, sandbox.Secrets("")...)
	out := tried(t, i, j, tries...)
	for _, try := range []string{"write " + work + "/logs/log", "write /dev/null", "write /tmp/mine"} {
		require.Equal(t, "done", out[try], try)
	}
	require.Equal(t, "code", out["read "+work+"/code.py"])
	for _, try := range []string{"read " + work + "/tasks.jsonl", "list " + work + "/.fulgurite", "read /etc/shadow", "list /run"} {
		require.Empty(t, out[try], try)
	}
	for _, try := range tries {
		verb, path, _ := strings.Cut(try, " ")
		switch {
		case verb == "write" && out[try] == "done":
			require.Contains(t, []string{work + "/logs/log", "/dev/null", "/tmp/mine"}, path)
		case verb == "remount", verb == "unmount", verb == "node", verb == "namespace", verb == "unix", verb == "environs", strings.HasSuffix(try, "store.db"), strings.HasSuffix(try, "note"):
			require.Contains(t, out[try], "error: ", try)
		}
	}
	require.NotContains(t, out["rights"], "1ff", "a right is left")
	require.Equal(t, "CapInh:0000000000000000 CapPrm:0000000000000000 CapEff:0000000000000000 CapBnd:0000000000000000 CapAmb:0000000000000000 NoNewPrivs:1", out["rights"])
	require.Equal(t, strconv.Itoa(os.Getuid()), out["uid"], "it is the same user as without a sandbox")
	require.Equal(t, "4096", out["files"])
	require.NoFileExists(t, "/tmp/mine")
	require.FileExists(t, filepath.Join(work, "logs", "log"))
}

func TestAnIsolatedAgentSeesNoOtherProcess(t *testing.T) {
	t.Parallel()
	other := exec.Command("/bin/sleep", "600")
	other.Env = []string{"SECRET=secret-of-another"}
	require.NoError(t, other.Start())
	t.Cleanup(func() { _, _ = other.Process.Kill(), other.Wait() })
	pid := strconv.Itoa(other.Process.Pid)
	out := tried(t, agent.Isolation{}, job("processes"), "pids", "kill "+pid, "trace "+pid, "trace 1", "read /proc/1/environ", "read /proc/1/maps", "environs secret-of-another")
	require.Equal(t, "2", out["pids"], "its own, and the first one of the sandbox")
	for _, try := range []string{"kill " + pid, "trace " + pid, "trace 1", "read /proc/1/environ", "read /proc/1/maps", "environs secret-of-another"} {
		require.Contains(t, out[try], "error: ", try)
	}
}

func TestAnIsolatedAgentSeesNoOtherHome(t *testing.T) {
	t.Parallel()
	w := newLiveness(t)
	c := isolated(t, agent.Isolation{Reach: []string{w.listener.Addr().String()}}, "hang")
	if scratch, err := os.MkdirTemp(".", ".homes-"); err == nil { //nolint:usetesting // not below /tmp, which is hidden in any case
		t.Cleanup(func() { _ = os.RemoveAll(scratch) })
		c.Scratch, err = filepath.Abs(scratch)
		require.NoError(t, err)
	}
	j := job("homes")
	j.Environment, j.Limits.Time = w.environment(), time.Millisecond
	var up atomic.Bool
	j.Waited = heldUntil(&up)
	end := start(t.Context(), c, j)
	w.await(t, 1)
	homes, err := filepath.Glob(filepath.Join(c.Scratch, "*2"))
	require.NoError(t, err)
	require.Len(t, homes, 1)
	k := job("homes")
	k.Address.Sample = 3
	c.Args = acting("attempts", "list "+c.Scratch, "list "+homes[0], "write "+homes[0]+"/x", "write "+strings.TrimSuffix(homes[0], "2")+"3/x")
	got := <-start(t.Context(), c, k)
	require.NoError(t, got.err)
	var out map[string]string
	require.NoError(t, json.Unmarshal([]byte(got.result.Text), &out))
	require.Equal(t, filepath.Base(strings.TrimSuffix(homes[0], "2")+"3"), out["list "+c.Scratch])
	require.Contains(t, out["list "+homes[0]], "error: ")
	require.Contains(t, out["write "+homes[0]+"/x"], "error: ")
	require.Equal(t, "done", out["write "+strings.TrimSuffix(homes[0], "2")+"3/x"])
	up.Store(true)
	require.Equal(t, agent.Timeout, (<-end).result.Failure)
}

func TestAnIsolatedAgentIsBounded(t *testing.T) {
	t.Parallel()
	t.Run("processes", func(t *testing.T) {
		t.Parallel()
		j := job("bomb")
		j.Limits.Processes = 60
		j.Limits.Time = testTimeout
		got := <-start(t.Context(), isolated(t, agent.Isolation{}, "bomb"), j)
		require.NoError(t, got.err)
		if os.Getuid() == 0 {
			require.Equal(t, agent.ProcessLimit, got.result.Failure, got.result)
			require.Regexp(t, `^ran \d+ processes and threads, 60 are allowed$`, got.result.Message)
		}
	})
	t.Run("processor time", func(t *testing.T) {
		t.Parallel()
		j := job("spin")
		j.Limits.CPU = 200 * time.Millisecond
		j.Limits.Time = testTimeout
		got := <-start(t.Context(), isolated(t, agent.Isolation{}, "spin"), j)
		require.NoError(t, got.err)
		require.Equal(t, agent.CPULimit, got.result.Failure, got.result)
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		w := newLiveness(t)
		j := job("eat")
		j.Environment, j.Limits.MemoryBytes = w.environment(), 128<<20
		got := <-start(t.Context(), isolated(t, agent.Isolation{Reach: []string{w.listener.Addr().String()}}, "eat", "4", "48"), j)
		require.NoError(t, got.err)
		require.Equal(t, agent.MemoryLimit, got.result.Failure)
	})
	t.Run("files", func(t *testing.T) {
		t.Parallel()
		j := job("big")
		j.Limits.FileBytes = 1 << 20
		out := tried(t, agent.Isolation{}, j, "big 1048576", "big 1048577")
		require.Equal(t, "done", out["big 1048576"])
		require.Contains(t, out["big 1048577"], "file too large")
	})
}

func TestAnIsolatedAgentEndsAsAnyOther(t *testing.T) {
	t.Parallel()
	j := job("ends")
	j.Limits.OutputBytes = 1 << 20
	of := func(role ...string) agent.Result {
		got := <-start(t.Context(), isolated(t, agent.Isolation{}, role...), j)
		require.NoError(t, got.err)
		return got.result
	}
	require.Equal(t, launch(t, j, "echo"), of("echo"))
	require.Equal(t, launch(t, j, "exit", "7"), of("exit", "7"))
	require.Equal(t, launch(t, j, "suicide"), of("suicide"))
	require.Empty(t, of("descriptors").Text, "it inherits nothing of its shim and the sandbox")
	require.Equal(t, agent.OutputLimit, of("flood").Failure)
	c := isolated(t, agent.Isolation{}, "echo")
	c.Args = []string{"no-such-program"}
	got := <-start(t.Context(), c, j)
	require.ErrorIs(t, got.err, agent.ErrNotStarted)
	require.ErrorContains(t, got.err, "no-such-program")
}

func TestADaemonInASandboxEndsWithItsAgent(t *testing.T) {
	t.Parallel()
	w := newLiveness(t)
	j := job("daemon")
	j.Environment, j.Limits.Time = w.environment(), time.Millisecond
	var up atomic.Bool
	j.Waited = heldUntil(&up)
	end := start(t.Context(), isolated(t, agent.Isolation{Reach: []string{w.listener.Addr().String()}}, "daemon", "1"), j)
	living := w.await(t, 2)
	up.Store(true)
	require.Equal(t, agent.Timeout, (<-end).result.Failure)
	living["parent"].requireDead(t)
	living["daemon"].requireDead(t)
}

// streamer is a model that streams a line, waits until the agent has it, and streams a MiB.
type streamer struct{ seen, closed chan string }

func (s streamer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/seen") {
		line, _ := io.ReadAll(r.Body)
		s.seen <- string(line)
		return
	}
	_, _ = io.WriteString(w, "first\n")
	w.(http.Flusher).Flush()
	select {
	case <-s.seen:
		_, _ = w.Write(make([]byte, 1<<20))
	case <-r.Context().Done():
		s.closed <- r.URL.Path
	}
}

func TestAnIsolatedAgentReadsAStreamAsItComes(t *testing.T) {
	t.Parallel()
	s := streamer{make(chan string, 1), make(chan string, 1)}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	j := job("stream")
	j.BaseURL = server.URL + "/r/x/v1"
	j.Limits.Time = testTimeout
	got := <-start(t.Context(), isolated(t, agent.Isolation{}, "stream", "read"), j)
	require.NoError(t, got.err)
	require.Equal(t, "first 1048576", got.result.Text, got.result)
	got = <-start(t.Context(), isolated(t, agent.Isolation{}, "stream", "close"), j)
	require.NoError(t, got.err)
	select {
	case <-s.closed: // the model notices that nobody reads
	case <-time.After(testTimeout):
		t.Fatal("the model still streams")
	}
}

func TestADeadWorkerLeavesNothingOfASandbox(t *testing.T) {
	t.Parallel()
	needSandbox(t)
	w := newLiveness(t)
	args := acting("worker", t.TempDir())
	worker := exec.Command(args[0], args[1:]...)
	worker.Env = append(os.Environ(), "LIVENESS="+w.listener.Addr().String(), "ISOLATED=1")
	require.NoError(t, worker.Start())
	t.Cleanup(func() { _, _ = worker.Process.Kill(), worker.Wait() })
	living := w.await(t, 3)
	require.NoError(t, worker.Process.Kill())
	for _, l := range living {
		l.requireDead(t)
	}
}

func TestADeadShimLeavesNothingOfASandbox(t *testing.T) {
	t.Parallel()
	w := newLiveness(t)
	c := isolated(t, agent.Isolation{Reach: []string{w.listener.Addr().String()}}, "parent", "hang")
	j := job("shim")
	j.Environment = w.environment()
	end := start(t.Context(), c, j)
	w.await(t, 3)
	locks, err := filepath.Glob(filepath.Join(c.Scratch, "*.lock"))
	require.NoError(t, err)
	require.Len(t, locks, 1)
	text, err := os.ReadFile(locks[0])
	require.NoError(t, err)
	var owner process.Owner
	require.NoError(t, json.Unmarshal(text, &owner))
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", owner.Shim))
	require.NoError(t, err)
	var sandboxes []byte
	for _, name := range lists {
		list, err := os.ReadFile(name)
		require.NoError(t, err)
		sandboxes = append(sandboxes, list...)
	}
	require.NotEmpty(t, sandboxes)
	require.NoError(t, syscall.Kill(owner.Shim, syscall.SIGKILL))
	require.Error(t, (<-end).err)
	for _, pid := range strings.Fields(string(sandboxes)) { // the relay died with the shim, so connections say nothing
		n, err := strconv.Atoi(pid)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return syscall.Kill(n, 0) != nil }, testTimeout, time.Millisecond)
	}
}

func TestAnIsolatedAgentIsAskedToEnd(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	c := isolated(t, agent.Isolation{Writable: []string{"."}})
	c.Args = sh(`trap 'echo asked > said; exit 0' TERM; echo up; while :; do sleep 0.01; done`)
	j := job("asked")
	j.Directory, j.Limits.Time = work, time.Millisecond
	var up atomic.Bool
	j.Waited, j.Progress = heldUntil(&up), func() { up.Store(true) }
	got := <-start(t.Context(), c, j)
	require.Equal(t, agent.Timeout, got.result.Failure)
	text, err := os.ReadFile(filepath.Join(work, "said"))
	require.NoError(t, err)
	require.Equal(t, "asked\n", string(text))
}

func TestALaterAttemptTakesTheHomeOfAnIsolatedOne(t *testing.T) {
	t.Parallel()
	w := newLiveness(t)
	i := agent.Isolation{Reach: []string{w.listener.Addr().String()}}
	c := isolated(t, i, "parent", "hang")
	j := job("retry")
	j.Execution, j.Environment = "x", w.environment()
	first := start(t.Context(), c, j)
	living := w.await(t, 3)
	j.Address.Attempt = 2
	c.Args = acting("litter")
	second := <-start(t.Context(), c, j)
	require.NoError(t, second.err)
	require.Equal(t, "1", second.result.Text, "the home is new, with its directory for temporary files")
	for _, l := range living {
		l.requireDead(t)
	}
	one := <-first
	require.True(t, one.err != nil || one.result.Failed(), "it was ended")
}

// It is not the machine that is at fault, and doctor could not help.
func TestAnIsolatedAgentMustSeeItsDirectory(t *testing.T) {
	t.Parallel()
	j := job("hidden")
	j.Directory = t.TempDir()
	got := <-start(t.Context(), isolated(t, agent.Isolation{Hidden: []string{j.Directory}}, "echo"), j)
	require.ErrorIs(t, got.err, agent.ErrNotStarted)
	require.ErrorContains(t, got.err, j.Directory+" has to be visible and is hidden at the same time")
	require.NotContains(t, got.err.Error(), "can't isolate")
	j.Directory = ""
	got = <-start(t.Context(), isolated(t, agent.Isolation{Writable: []string{"/no/such/place"}}, "echo"), j)
	require.ErrorContains(t, got.err, "make /no/such/place writable for the agent")
}

func TestAnOrdinaryUserIsolatesAgentsToo(t *testing.T) {
	t.Parallel()
	needSandbox(t)
	c := unprivileged("isolate")
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	want := os.Getuid()
	if want == 0 {
		want = nobody
	}
	// The first process, the shell and its children.
	require.Regexp(t, fmt.Sprintf(`^user %d, wrote no, home yes, processes [2-5] \n$`, want), string(out))
}

func TestAMachineThatCannotIsolateRunsNoAgent(t *testing.T) {
	t.Parallel()
	needSandbox(t)
	ran := filepath.Join(t.TempDir(), "ran")
	args := acting("unable", t.TempDir(), ran)
	// In this namespace, no further ones can be made.
	worker := exec.Command("unshare", append([]string{"-Ur", "sh", "-c", `echo 0 > /proc/sys/user/max_user_namespaces; exec "$0" "$@"`}, args...)...)
	out, err := worker.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "agent.sandbox: process: this machine can't isolate a program")
	require.Contains(t, string(out), "user.max_user_namespaces")
	require.NoFileExists(t, ran)
}

// BenchmarkLaunch starts a program that ends at once, and also counts the processor time of
// what was started: the supervisor, the sandbox and the program.
func BenchmarkLaunch(b *testing.B) {
	processor := func() time.Duration {
		var used syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used); err != nil {
			b.Fatal(err)
		}
		return time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	for name, isolation := range map[string]*agent.Isolation{"plain": nil, "isolated": {}} {
		b.Run(name, func(b *testing.B) {
			c := agent.Command{Args: []string{"/bin/true"}, Scratch: b.TempDir(), Isolation: isolation}
			before := processor()
			for b.Loop() {
				if _, err := c.Launch(b.Context(), job("bench")); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((processor()-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
		})
	}
}
