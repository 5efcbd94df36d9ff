package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// outputBytes is how much of a program's output is kept.
const outputBytes = 1 << 20

// output runs a program and returns what it writes to standard output. When ctx ends, the
// program and all processes that it started are killed. The error of a program that fails
// includes the last line that it wrote.
func output(ctx context.Context, name string, args ...string) (string, error) {
	began := time.Now()
	var out, problems limited
	command := exec.CommandContext(ctx, name, args...)
	command.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	command.Stdout, command.Stderr = &out, &problems
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	err := command.Run()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", silence(time.Since(began).Round(100 * time.Millisecond))
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", fmt.Errorf("%w%s", err, cmp.Or(lastLine(problems.String()), lastLine(out.String())))
	}
	return out.String(), nil
}

// lastLine returns ": " and the last line of text that is not empty.
func lastLine(text string) string {
	last := ""
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			last = ": " + shortened(line)
		}
	}
	return last
}

// shortened returns text cut to a length that fits a line.
func shortened(text string) string {
	const most = 200
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// limited keeps the beginning of its input.
type limited struct{ kept []byte }

func (l *limited) Write(p []byte) (int, error) {
	l.kept = append(l.kept, p[:min(len(p), outputBytes-len(l.kept))]...)
	return len(p), nil
}

func (l *limited) String() string { return string(l.kept) }
