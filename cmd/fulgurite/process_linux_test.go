package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newTool returns a process that runs the tool with these arguments.
func newTool(arguments ...string) *exec.Cmd {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), toolVariable+"="+strings.Join(arguments, "\n"))
	return c
}

// A pipe that nobody writes to stands for a file that takes for ever to read.
func TestASecondSignalEndsWhatDoesNotSeeTheFirst(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{{"plan", "PIPE"}, {"train", "PIPE"}, {"import", "MODEL", "OUT"}, {"tasks", "PIPE"}, {"grade", "--grader", "exact", "PIPE", "PIPE"}} {
		t.Run(command[0], func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			pipe := filepath.Join(dir, "tasks.jsonl")
			if command[0] == "import" {
				pipe = filepath.Join(dir, "config.json")
			}
			require.NoError(t, syscall.Mkfifo(pipe, 0o600))
			for i, argument := range command {
				command[i] = strings.NewReplacer("PIPE", pipe, "MODEL", dir, "OUT", filepath.Join(dir, "out")).Replace(argument)
			}
			tool := newTool(append(command, "--dir", filepath.Join(dir, "state"))...)
			var out bytes.Buffer
			tool.Stdout, tool.Stderr = &out, &out
			require.NoError(t, tool.Start())
			ended := make(chan error, 1)
			go func() { ended <- tool.Wait() }()
			opened := make(chan *os.File, 1)
			go func() { // returns when the tool opens the other end
				f, _ := os.OpenFile(pipe, os.O_WRONLY, 0)
				opened <- f
			}()
			select {
			case f := <-opened:
				defer func() { _ = f.Close() }()
			case err := <-ended:
				require.FailNow(t, "the tool does not read the pipe", "%v: %s", err, &out)
			}
			tick, limit := time.NewTicker(50*time.Millisecond), time.NewTimer(20*time.Second)
			defer tick.Stop()
			for signals := 0; ; {
				select {
				case err := <-ended:
					require.Error(t, err)
					require.LessOrEqual(t, signals, 10, "%s", &out)
					require.Equal(t, exitInterrupted, tool.ProcessState.ExitCode(), "%s", &out)
					return
				case <-tick.C:
					_ = tool.Process.Signal(os.Interrupt) // it may have ended
					signals++
				case <-limit.C:
					_ = tool.Process.Kill()
					require.FailNow(t, "signals do not end the tool", "%s", &out)
				}
			}
		})
	}
}

// Containers run with any user id, often with the HOME of another user.
func TestAStackRunsForAUserWithoutAName(t *testing.T) {
	t.Parallel()
	for name, home := range map[string]string{"no home": "", "the home of another": "/root"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dev := newTool("dev", "--dir", filepath.Join(t.TempDir(), "state"), "--port", "0", "--ui-port", "0", "--gateway-port", "0")
			for _, variable := range []string{"USER", "LOGNAME", "HOME", "XDG_CONFIG_HOME"} {
				dev.Env = append(dev.Env, variable+"=")
			}
			dev.Env = append(dev.Env, "HOME="+home)
			dev.SysProcAttr = anotherUser()
			var errs bytes.Buffer
			dev.Stderr = &errs
			out, err := dev.StdoutPipe()
			require.NoError(t, err)
			if err := dev.Start(); err != nil {
				t.Skipf("no other user id can be had here: %v", err)
			}
			printed, err := io.ReadAll(readUntil(t, dev, out, "is up."))
			require.NoError(t, err)
			err = dev.Wait()
			require.Empty(t, withoutStillEnding(errs.String()), "%s", printed)
			require.NoError(t, err)
		})
	}
}

// readUntil interrupts a process once it has printed the text. It returns all that the
// process prints.
func readUntil(t *testing.T, process *exec.Cmd, out io.Reader, text string) io.Reader {
	t.Helper()
	read, write := io.Pipe()
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			_, _ = fmt.Fprintln(write, lines.Text())
			if strings.Contains(lines.Text(), text) {
				_ = process.Process.Signal(os.Interrupt)
			}
		}
		_ = write.Close()
	}()
	return read
}
