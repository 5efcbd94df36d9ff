package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/model/engine/native"
)

var wholeDemo = flag.Bool("whole-demo", false, "run the demo of the README to its end, a minute on two idle cores")

// process is a `fulgurite demo` under way, as a person would have started it.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	output strings.Builder
	errors strings.Builder
}

// startDemo starts a short demo on dir.
func startDemo(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	args = append([]string{"demo", "--dir", dir, "--steps", "3", "--problems", "16"}, args...)
	p := &process{t: t, cmd: exec.CommandContext(t.Context(), "fulgurite", args...)}
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.cmd.Stderr = &p.errors
	p.lines = bufio.NewScanner(out)
	require.NoError(t, p.cmd.Start())
	return p
}

// waitFor reads the output up to and including a line that begins with prefix.
func (p *process) waitFor(prefix string) {
	p.t.Helper()
	for p.lines.Scan() {
		p.output.WriteString(p.lines.Text() + "\n")
		if strings.HasPrefix(p.lines.Text(), prefix) {
			return
		}
	}
	_ = p.cmd.Wait()
	require.FailNow(p.t, "the demo did not say "+prefix, "%s%s", &p.output, &p.errors)
}

// end waits for the end and returns the exit code, -1 if a signal ended it.
func (p *process) end() int {
	p.t.Helper()
	for p.lines.Scan() {
		p.output.WriteString(p.lines.Text() + "\n")
	}
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(p.t, err)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// result reads what --json wrote, as another program would.
func result(t *testing.T, path string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var out map[string]any
	require.NoError(t, json.Unmarshal(text, &out))
	return out
}

// withoutStillEnding returns what a process printed to its standard error,
// without the line that it is slow to end, as on a busy machine.
func withoutStillEnding(errs string) string {
	return strings.TrimSpace(strings.ReplaceAll(errs, stillEnding, ""))
}

// TestDemoSurvivesItsProcess kills a demo, then interrupts it, then lets it finish. Its
// result must equal that of a demo that was never interrupted.
func TestDemoSurvivesItsProcess(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("raced as a run that is killed; what the demo learns takes minutes under the race detector")
	}
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "result.json")

	p := startDemo(t, dir)
	p.waitFor("Run demo-1 started.")
	p.waitFor("step 1/3")
	p.signal(syscall.SIGKILL)
	require.Equal(t, -1, p.end())

	p = startDemo(t, dir)
	p.waitFor("Run demo-1 goes on.")
	p.waitFor("step 2/3")
	p.signal(syscall.SIGINT)
	require.Equal(t, exitInterrupted, p.end(), "%s", &p.errors)
	require.Contains(t, p.output.String(), "Stopped. The same command goes on with the run.")
	require.Empty(t, withoutStillEnding(p.errors.String()))
	require.NoFileExists(t, filepath.Join(dir, "stack.json"))

	p = startDemo(t, dir, "--seed", "2")
	require.Equal(t, exitUsage, p.end())
	require.Contains(t, p.errors.String(), "run demo-1 is under way with other settings")

	p = startDemo(t, dir, "--json", file)
	p.waitFor("Run demo-1 goes on.")
	require.Zero(t, p.end(), "%s", &p.errors)
	for _, want := range []string{"Reward of demo-1", "test reward before", "test reward after", "fulgurite chat --dir " + dir + " demo-1@promoted"} {
		require.Contains(t, p.output.String(), want)
	}
	require.NotContains(t, p.output.String(), "\x1b", "no terminal, no control characters")
	first := result(t, file)
	require.Subset(t, slices.Collect(maps.Keys(first)), []string{
		"seed", "reward_before", "reward_after", "wall_seconds", "peak_rss_bytes", "weights_sha256", "run",
	})
	require.Equal(t, "demo-1", first["run"])
	require.InDelta(t, 1, first["seed"], 0)
	require.InDelta(t, 3, first["steps"], 0)
	require.Regexp(t, `^[0-9a-f]{64}$`, first["weights_sha256"])
	requireWeights(t, "3f9093890b0b22f1b1c3a3bbb3dc57d99046a8f3b5ca7312605f76ade0f92a8c", first)
	require.Greater(t, first["wall_seconds"], 0.0)
	require.Greater(t, first["peak_rss_bytes"], 1e6)
	for _, name := range []string{"reward.svg", "promoted/config.json", "promoted/model.safetensors"} {
		require.FileExists(t, filepath.Join(dir, "runs", "demo-1", name))
	}

	p = startDemo(t, dir, "--json", file)
	p.waitFor("Run demo-2 started.")
	require.Zero(t, p.end(), "%s", &p.errors)
	second := result(t, file)
	require.Equal(t, "demo-2", second["run"])
	for _, key := range []string{"weights_sha256", "reward_before", "reward_after", "promoted"} {
		require.Equal(t, second[key], first[key], key)
	}
}

// requireWeights compares the weights that a demo ended in with those of earlier
// releases, where the engine's numerics are the same.
func requireWeights(t *testing.T, want string, result map[string]any) {
	t.Helper()
	if strings.Contains(native.New(native.Options{}).Fingerprint(), "amd64-v1 fused16") {
		require.Equal(t, want, result["weights_sha256"],
			"the bits that training ends in have changed: raise the version in the engine's fingerprint, or mend what changed them")
	}
}

func TestTheWholeDemoEndsInTheSameWeights(t *testing.T) {
	if !*wholeDemo {
		t.Skip("takes a minute: -whole-demo")
	}
	file := filepath.Join(t.TempDir(), "result.json")
	p := startDemo(t, t.TempDir(), "--steps", "40", "--problems", "0", "--seed", "1", "--json", file)
	require.Zero(t, p.end(), "%s", &p.errors)
	requireWeights(t, "c37a7c71c1d2f0f3b1762548ae6a9ddb583f38f918719645a09644188ca5bf60", result(t, file))
}

// TestDemoStartsAnewAfterATerminatedRun terminates a run in Temporal, where the run can't
// close its own record.
func TestDemoStartsAnewAfterATerminatedRun(t *testing.T) {
	t.Parallel()
	s := &state.Flags{Dir: t.TempDir()}
	p := startDemo(t, s.Dir)
	p.waitFor("step 1/3")
	temporal, err := s.Dial(t.Context(), &terminal.Terminal{Out: io.Discard, Err: io.Discard})
	require.NoError(t, err)
	defer temporal.Close()
	require.NoError(t, temporal.TerminateWorkflow(t.Context(), "demo-1", "", "a person did it"))
	require.Equal(t, exitFailed, p.end())
	require.Contains(t, p.errors.String(), "run demo-1: ")

	p = startDemo(t, s.Dir)
	p.waitFor("Run demo-2 started.")
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitInterrupted, p.end(), "%s", &p.errors)
}
