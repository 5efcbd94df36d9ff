package agent_test

import (
	"context"
	"encoding/json"
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

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
)

func launch(t *testing.T, j agent.Job, role ...string) agent.Result {
	t.Helper()
	l := <-start(t.Context(), agent.Command{Args: acting(role...), Scratch: t.TempDir()}, j)
	require.NoError(t, l.err)
	return l.result
}

type launched struct {
	result agent.Result
	err    error
}

// start launches in the background, so that the test can do something else.
func start(ctx context.Context, l agent.Launcher, j agent.Job) <-chan launched {
	c := make(chan launched, 1)
	go func() {
		result, err := l.Launch(ctx, j)
		c <- launched{result, err}
	}()
	return c
}

func TestCommandReadsItsTaskAndItsLastLineIsTheResult(t *testing.T) {
	t.Parallel()
	got := launch(t, job("demo"), "echo")
	want := agent.Result{Text: "6*7", Stderr: "a remark"}
	want.Output = record.Output{Stdout: "thinking about t17\n6*7 \n\n  \n", Stderr: "a remark", LinesBefore: 1}
	require.Equal(t, want, got)
	require.False(t, got.Failed())
}

func TestExitCodeIsTheAgentsFailure(t *testing.T) {
	t.Parallel()
	got := launch(t, job("demo"), "exit", "7")
	require.Equal(t, agent.Exit, got.Failure)
	require.Equal(t, 7, got.ExitCode)
	require.Equal(t, "exit code 7", got.Message)
	require.Empty(t, got.Text)
	require.True(t, strings.HasSuffix(got.Stderr, "noise the reason\n"), "keeps the end of standard error")
	require.Len(t, got.Stderr, 8<<10)
}

func TestDeathBySignalIsTheAgentsFailure(t *testing.T) {
	t.Parallel()
	got := launch(t, job("demo"), "signal")
	require.Equal(t, agent.Exit, got.Failure)
	require.Contains(t, []int{2, 128 + int(syscall.SIGSEGV)}, got.ExitCode) // Go turns the signal into a panic
	require.False(t, got.Failure.Unclear())
}

func TestDeathByASignalFromOutsideIsUnclear(t *testing.T) {
	t.Parallel()
	got := launch(t, job("demo"), "suicide")
	require.Equal(t, agent.Killed, got.Failure)
	require.Equal(t, "ended by signal: killed", got.Message)
	require.True(t, got.Failure.Unclear(), "it may have been the kernel, for want of memory")
}

func TestProgramThatIsMissingIsAFault(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"no-such-program-anywhere"}, {"/dev/null"}} {
		_, err := agent.Command{Args: args, Scratch: t.TempDir()}.Launch(t.Context(), job("demo"))
		require.ErrorIs(t, err, agent.ErrNotStarted)
	}
}

func TestCommandSeesOnlyTheEnvironmentBuiltForIt(t *testing.T) {
	t.Setenv("DATABASE_PASSWORD", "hunter2")
	t.Setenv("OPENAI_ORG_ID", "the worker's own")
	j := job("demo")
	j.Environment = map[string]string{"MODE": "fast", "TZ": "Europe/Berlin"}
	scratch := t.TempDir()
	result, err := agent.Command{Args: acting("surroundings"), Scratch: scratch}.Launch(t.Context(), j)
	require.NoError(t, err)
	var lines []string
	require.NoError(t, json.Unmarshal([]byte(result.Text), &lines))
	got := map[string]string{}
	for _, l := range lines {
		name, value, _ := strings.Cut(l, "=")
		got[name] = value
	}
	home := filepath.Join(scratch, "demo+train-3+17+2")
	base := "http://127.0.0.1:1/r/demo/train-3/17/2/1"
	want := map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": home, "CWD": home, "TMPDIR": home + "/tmp",
		"LANG": "C.UTF-8", "TZ": "Europe/Berlin", "PYTHONHASHSEED": "0", "MODE": "fast",
		"OPENAI_BASE_URL": base + "/v1", "OPENAI_API_BASE": base + "/v1", "OPENAI_API_KEY": "secret-of-the-attempt",
		"OPENAI_MODEL_NAME": "fulgurite", "OPENAI_DEFAULT_MODEL": "fulgurite",
		"ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": "secret-of-the-attempt",
		"OPENAI_CHAT_MODEL_ID": "fulgurite", "OPENAI_RESPONSES_MODEL_ID": "fulgurite",
		"OTEL_EXPORTER_OTLP_ENDPOINT": base + "/otlp", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": base + "/otlp/v1/traces",
		"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20secret-of-the-attempt",
		"AGL_ATTEMPT_ID":           "1",
		"AGL_EVENT_URL":            "http://127.0.0.1:1/r/demo/train-3/17/2/1/events",
		"AGL_KEY":                  "secret-of-the-attempt",
		"AGL_MODEL_NAME":           "fulgurite",
		"AGL_OPENAI_BASE_URL":      "http://127.0.0.1:1/r/demo/train-3/17/2/1/v1",
		"AGL_ROLLOUT_ID":           "demo/train-3/17/2",
		"AGL_TASK_INPUT":           `{"id":"t17","input":"6*7","level":"easy"}`,
		"OTEL_RESOURCE_ATTRIBUTES": "fulgurite.rollout=demo/train-3/17/2/1", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none",
		"TRACELOOP_BASE_URL": base + "/otlp", "TRACELOOP_API_KEY": "secret-of-the-attempt",
		"OPENAI_AGENTS_DISABLE_TRACING": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CREWAI_DISABLE_TELEMETRY": "true",
		"TRACELOOP_TELEMETRY": "false", "DO_NOT_TRACK": "1", "FULGURITE_HOME": home,
		"FULGURITE_ROLLOUT": "demo/train-3/17/2", "FULGURITE_REWARD_URL": base + "/rewards", "FULGURITE_EVENT_URL": base + "/events",
		"FULGURITE_TASK": `{"id":"t17","input":"6*7","metadata":{"level":"easy"}}`,
	}
	require.Empty(t, cmp.Diff(want, got))
}

func TestAttemptsAtARolloutDifferInAddressAndKeyOnly(t *testing.T) {
	t.Parallel()
	scratch := t.TempDir()
	look := func(n int, key string) string {
		j, attempt := job("demo"), strconv.Itoa(n)
		j.Address.Attempt, j.BaseURL, j.Key = n, "http://127.0.0.1:1/r/demo/train-3/17/2/"+attempt+"/v1", key
		r, err := agent.Command{Args: acting("surroundings"), Scratch: scratch}.Launch(t.Context(), j)
		require.NoError(t, err)
		return strings.NewReplacer("/17/2/"+attempt, "/17/2/N", key, "KEY", "AGL_ATTEMPT_ID="+attempt, "AGL_ATTEMPT_ID=N").Replace(r.Text)
	}
	require.Equal(t, look(1, "a-first-key"), look(2, "another-key"))
}

func TestAgentInheritsNoFileOfItsShim(t *testing.T) {
	t.Parallel()
	require.Empty(t, launch(t, job("demo"), "descriptors").Text)
}

func TestLongTaskGoesThroughStandardInputOnly(t *testing.T) {
	t.Parallel()
	j := job("demo")
	j.Task.Input = strings.Repeat("y", 300<<10)
	require.Equal(t, strings.Repeat("y", 300<<10), launch(t, j, "echo").Text)
	require.Equal(t, agent.Exit, launch(t, j, "exit", "1").Failure, "an agent need not read its task")
}

func TestEveryAttemptFindsItsHomeEmpty(t *testing.T) {
	t.Parallel()
	scratch := t.TempDir()
	for range 3 {
		r, err := agent.Command{Args: acting("litter"), Scratch: scratch}.Launch(t.Context(), job("demo"))
		require.NoError(t, err)
		require.Equal(t, "1", r.Text) // its tmp
	}
	left, err := os.ReadDir(scratch)
	require.NoError(t, err)
	require.Empty(t, left, "homes are removed")
}

func TestTimeLimitEndsTheAgent(t *testing.T) {
	t.Parallel()
	w := newLiveness(t)
	j := job("demo")
	j.Environment, j.Limits.Time = w.environment(), 50*time.Millisecond
	var up atomic.Bool
	j.Waited = heldUntil(&up) // its time begins then
	end := start(t.Context(), agent.Command{Args: acting("hang"), Scratch: t.TempDir()}, j)
	living := w.await(t, 1)
	up.Store(true)
	got := <-end
	require.NoError(t, got.err)
	require.Equal(t, agent.Timeout, got.result.Failure)
	require.Equal(t, "still running after 50ms", got.result.Message)
	require.Equal(t, 128+int(syscall.SIGTERM), got.result.ExitCode)
	living["hang"].requireDead(t)
}

func TestAgentThatIgnoresTheSignalIsKilled(t *testing.T) {
	t.Parallel()
	w := newLiveness(t)
	j := job("demo")
	j.Environment = w.environment()
	ctx, cancel := context.WithCancel(t.Context())
	end := start(ctx, agent.Command{Args: acting("stubborn"), Scratch: t.TempDir()}, j)
	living := w.await(t, 1)
	cancel()
	require.ErrorIs(t, (<-end).err, context.Canceled, "who ends its context hears of no failure")
	living["stubborn"].requireDead(t)
}

func TestOutputLimitEndsTheAgent(t *testing.T) {
	t.Parallel()
	j := job("demo")
	j.Limits.OutputBytes = 1 << 20
	got := launch(t, j, "flood")
	require.Equal(t, agent.OutputLimit, got.Failure)
	require.NotZero(t, got.ExitCode, "it wasn't allowed to write it all")
}

func TestWhatAnAgentLeavesBehindIsEnded(t *testing.T) {
	t.Parallel()
	w := newLiveness(t)
	j := job("demo")
	j.Environment = w.environment()
	end := start(t.Context(), agent.Command{Args: acting("parent", "return"), Scratch: t.TempDir()}, j)
	living := w.await(t, 3)
	require.Equal(t, launched{result: agent.Result{Text: "done", Output: record.Output{Stdout: "reported\ndone\n", LinesBefore: 1}}}, <-end)
	for _, l := range living {
		l.requireDead(t)
	}
}

func TestNoAgentSurvivesItsWorker(t *testing.T) {
	t.Parallel()
	w := newLiveness(t)
	scratch := t.TempDir()
	args := acting("worker", scratch)
	worker := exec.Command(args[0], args[1:]...)
	worker.Env = append(os.Environ(), "LIVENESS="+w.listener.Addr().String())
	require.NoError(t, worker.Start())
	living := w.await(t, 3)
	require.NoError(t, worker.Process.Kill())
	require.Error(t, worker.Wait())
	for _, name := range []string{"parent", "child", "runaway"} {
		living[name].requireDead(t)
	}

	// The next attempt at the same rollout gets the home that the dead one held.
	r, err := agent.Command{Args: acting("litter"), Scratch: scratch}.Launch(t.Context(), job("worker"))
	require.NoError(t, err)
	require.Equal(t, "1", r.Text)
}

func TestLossOfTheShimIsAFault(t *testing.T) {
	t.Parallel()
	w := newLiveness(t)
	j := job("demo")
	j.Environment = w.environment()
	end := start(t.Context(), agent.Command{Args: acting("hang"), Scratch: t.TempDir()}, j)
	l := w.await(t, 1)["hang"]
	require.NoError(t, syscall.Kill(l.parent, syscall.SIGKILL))
	require.ErrorContains(t, (<-end).err, "read shim's")
	l.requireDead(t)
}

func TestOutputIsASignOfLife(t *testing.T) {
	t.Parallel()
	signs := make(chan struct{}, 100)
	j := job("demo")
	j.Progress = func() { signs <- struct{}{} }
	launch(t, j, "echo")
	require.NotEmpty(t, signs)
}
