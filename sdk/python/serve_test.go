package python_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
)

// interpreter returns the path of a Python, or skips the test if there is none.
func interpreter(t *testing.T) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 to run agents with")
	}
	resolved, err := exec.CommandContext(t.Context(), python, "-c", "import sys; print(sys.executable)").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(resolved)) // python3 may be a wrapper that sets variables
}

// serve starts the server for a program with the given text. modules are further files in
// the program's folder.
func serve(t *testing.T, program string, modules map[string]string) (s agent.Service, script string) {
	t.Helper()
	folder := t.TempDir()
	script = filepath.Join(folder, "agent.py")
	require.NoError(t, os.WriteFile(script, []byte(program), 0o600))
	for name, text := range modules {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name+".py"), []byte(text), 0o600))
	}
	command := exec.CommandContext(t.Context(), interpreter(t), "fulgurite_serve.py", "--port", "0", script, "first", "--second")
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	command.Env, command.Stderr = []string{"PATH=" + os.Getenv("PATH")}, t.Output()
	output, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	t.Cleanup(func() { _ = command.Wait() })
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	url, _, _ := strings.Cut(line, " ")
	return agent.Service{URL: url}, script
}

func job(task int) agent.Job {
	rollout := record.RolloutID{Run: "demo", Kind: record.Train, Step: 3, Task: task, Sample: 2}
	return agent.Job{
		Address: record.Address{RolloutID: rollout, Attempt: 4},
		Task:    agent.Task{ID: "t" + strconv.Itoa(task), Input: "6*7 ≠ 41", Metadata: map[string]any{"level": "easy"}},
		BaseURL: "http://127.0.0.1:1/r/" + rollout.String() + "/4/v1", Key: "secret-of-the-attempt",
	}
}

func TestAServedProgramSeesWhatACommandSees(t *testing.T) {
	t.Parallel()
	s, script := serve(t, `
import json, os, sys
print("a line before")
print(json.dumps({"variables": dict(os.environ), "task": sys.stdin.read(), "arguments": sys.argv, "name": __name__}))
print()
`, nil)
	type seen struct {
		Variables map[string]string
		Task      string
		Arguments []string
		Name      string
	}
	read := func(l agent.Launcher) (out seen) {
		result, err := l.Launch(t.Context(), job(17))
		require.NoError(t, err)
		require.Empty(t, result.Message)
		require.NoError(t, json.Unmarshal([]byte(result.Text), &out), result.Text)
		return out
	}
	served := read(s)
	commanded := read(agent.Command{Args: []string{interpreter(t), script, "first", "--second"}, Scratch: t.TempDir()})
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG", "TZ", "FULGURITE_HOME", "SHLVL"} {
		delete(commanded.Variables, name) // the machine's and the rollout's home
	}
	for name, want := range commanded.Variables {
		require.Contains(t, served.Variables, name)
		if strings.HasPrefix(want, "{") {
			require.JSONEq(t, want, served.Variables[name], name)
			continue
		}
		require.Equal(t, want, served.Variables[name], name)
	}
	require.JSONEq(t, commanded.Task, served.Task)
	require.Equal(t, commanded.Arguments, served.Arguments)
	require.Equal(t, "__main__", served.Name)
}

func TestEachAttemptHasAProcessOfItsOwn(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, `
import json, sys
import counter
counter.count += 1
task = json.load(sys.stdin)
print(task["id"], counter.count, counter.key)
`, map[string]string{"counter": "import os\ncount, key = 0, os.environ['OPENAI_API_KEY']\n"})
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			result, err := s.Launch(t.Context(), job(i))
			if err != nil || result.Text != "t"+strconv.Itoa(i)+" 1 secret-of-the-attempt" {
				t.Errorf("task %d: %+v, %v", i, result, err)
			}
		})
	}
	all.Wait()
}

// A service that is killed can be started again at its address while its attempts still run.
func TestAnAttemptDoesNotHoldTheAddressOfTheService(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("the open files of a process can't be listed here")
	}
	s, _ := serve(t, `
import os, socket
listening = 0
for fd in os.listdir("/proc/self/fd"):
    try:
        with socket.socket(fileno=os.dup(int(fd))) as one:
            listening += one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError:
        pass
print(listening)
`, nil)
	result, err := s.Launch(t.Context(), job(1))
	require.NoError(t, err)
	require.Equal(t, "0", result.Text)
}

func TestAProgramThatFailsIsTheAgentsFailure(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct{ program, message string }{
		"exception": {"raise ValueError('no such tool')", "exit code 1: ValueError: no such tool"},
		"exit":      {"import sys; sys.exit(3)", "exit code 3"},
		"words":     {"raise SystemExit('no tool')", "exit code 1: no tool"},
		"killed":    {"import os; os.kill(os.getpid(), 9)", "ended by signal 9"},
		"syntax":    {"import os\nexec('1 +')", "exit code 1: SyntaxError: invalid syntax"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := serve(t, of.program, nil)
			result, err := s.Launch(t.Context(), job(1))
			require.NoError(t, err)
			require.Equal(t, agent.Error, result.Failure)
			require.Equal(t, "service answered 500 Internal Server Error: "+of.message, result.Message)
		})
	}
	asks, _ := serve(t, "import os, sys; print('so'); print('the search is down'); sys.exit(os.EX_TEMPFAIL)", nil)
	again, err := asks.Launch(t.Context(), job(1))
	require.NoError(t, err)
	require.Equal(t, agent.Result{Failure: agent.Retry, Message: "the search is down"}, again)
	s, _ := serve(t, "import atexit; atexit.register(print, 'at the end'); print('result'); raise SystemExit", nil)
	result, err := s.Launch(t.Context(), job(1))
	require.NoError(t, err)
	require.Equal(t, agent.Result{Text: "at the end"}, result, "what a program does at its end is done")
	response, err := http.Post(s.URL, "application/json", strings.NewReader(`{"id": "t1"}`))
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	require.Equal(t, http.StatusBadRequest, response.StatusCode)
}

func TestAProgramEndsWithItsAttempt(t *testing.T) {
	t.Parallel()
	note := filepath.Join(t.TempDir(), "note")
	s, _ := serve(t, `
import os, subprocess, sys, time
below = subprocess.Popen(["sleep", "600"])
with open(sys.argv[0] + ".part", "w") as file:
    file.write(f"{os.getpid()} {below.pid}")
os.rename(sys.argv[0] + ".part", "`+note+`")
time.sleep(600)
`, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Launch(ctx, job(1))
		ended <- err
	}()
	var text []byte
	require.Eventually(t, func() bool {
		var err error
		text, err = os.ReadFile(note)
		return err == nil
	}, 30*time.Second, 10*time.Millisecond)
	cancel()
	require.Error(t, <-ended)
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return !alive(pid) }, 30*time.Second, 10*time.Millisecond, "process %d", pid)
	}
}

// alive reports whether a process runs. A zombie does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

func TestMissingPackagesAreNamedAtTheStart(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "agent.py")
	require.NoError(t, os.WriteFile(script, []byte("import no_such_package\n"), 0o600))
	output, err := exec.CommandContext(t.Context(), interpreter(t), "fulgurite_serve.py", "--port", "0", script).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(output), script+" imports no_such_package: No module named 'no_such_package'")
}
