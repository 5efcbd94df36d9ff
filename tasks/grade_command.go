package tasks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/fulgurite/fulgurite/spec"
)

// Faults of a grader command; a *CommandError wraps one of them.
var (
	ErrGraderStart  = errors.New("grader can't be started")
	ErrGraderExit   = errors.New("grader failed")
	ErrGraderTime   = errors.New("grader over its time limit")
	ErrGraderReward = errors.New("grader printed no usable reward")
)

// CommandError is the error of a grader command that gave no reward.
type CommandError struct {
	Task   string // the task's id
	Cause  error  // wraps one of the sentinels above
	Stderr string // the end of the command's standard error
}

// Error names the task and the cause, and quotes the end of standard error.
func (e *CommandError) Error() string {
	text := fmt.Sprintf("grade task %s: %v", e.Task, e.Cause)
	if tail := withoutTraces(strings.TrimSpace(e.Stderr)); tail != "" {
		text += "; it wrote: " + tail
	}
	return text
}

// Unwrap returns the cause.
func (e *CommandError) Unwrap() error { return e.Cause }

// graderInput is the standard input of a grader command.
type graderInput struct {
	Task   Task   `json:"task"`
	Result string `json:"result"`
}

const (
	keptOutput = 64 << 10 // of the end of standard output
	keptError  = 4 << 10  // of the end of standard error
	// grace is how long a killed grader's children may keep its output open.
	grace = time.Second
	// commandSeconds is a grader's default time limit.
	commandSeconds = 10
)

// GradeCommand runs the grader's command in its directory, with the environment of this
// process and with {"task": …, "result": …} as JSON on standard input. The last line that
// the command prints and that is not blank is the reward, a finite decimal number. Errors
// about the command are a *CommandError. If ctx ends first, the error is that of ctx,
// which says nothing about the command. At the end, the command and the processes that it
// started are killed.
func GradeCommand(ctx context.Context, g spec.Grader, t Task, result string) (float64, error) {
	input, err := json.Marshal(graderInput{t, result})
	if err != nil {
		return 0, fmt.Errorf("encode task %s for its grader: %w", t.ID, err)
	}
	if len(g.Command) == 0 {
		return 0, &CommandError{Task: t.ID, Cause: fmt.Errorf("%w: no command", ErrGraderStart)}
	}
	seconds := g.Seconds
	if seconds == 0 {
		seconds = commandSeconds
	}
	limited, cancel := context.WithTimeout(ctx, time.Duration(seconds*float64(time.Second)))
	defer cancel()
	stdout, stderr := &tail{size: keptOutput}, &tail{size: keptError}
	command := exec.CommandContext(limited, g.Command[0], g.Command[1:]...)
	command.Dir, command.Stdin, command.Stdout, command.Stderr = g.Directory, bytes.NewReader(input), stdout, stderr
	command.WaitDelay = grace
	ownGroup(command)
	err = run(command)
	switch {
	case err != nil && ctx.Err() != nil:
		return 0, fmt.Errorf("grade task %s: %w", t.ID, ctx.Err())
	case err != nil && limited.Err() != nil:
		err = fmt.Errorf("%w of %g seconds", ErrGraderTime, seconds)
	}
	reward := 0.0
	if err == nil {
		reward, err = rewardIn(stdout)
	}
	if err != nil {
		return 0, &CommandError{Task: t.ID, Cause: err, Stderr: stderr.String()}
	}
	return reward, nil
}

func run(command *exec.Cmd) error {
	if err := command.Start(); err != nil {
		return fmt.Errorf("%w: %w", ErrGraderStart, err)
	}
	err := command.Wait()
	killGroup(command) // processes that the command left running
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return nil // the reward is valid even if a child kept the output open
	}
	return fmt.Errorf("%w: %w", ErrGraderExit, err)
}

// rewardIn returns the reward on the last line. A line whose beginning is gone is refused,
// because the rest of it may be a number that nobody meant.
func rewardIn(stdout *tail) (float64, error) {
	output := strings.TrimRightFunc(stdout.String(), unicode.IsSpace)
	start := strings.LastIndexByte(output, '\n') + 1
	last := strings.TrimSpace(output[start:])
	switch {
	case start == 0 && stdout.cut():
		return 0, fmt.Errorf("%w: its last line, or the white space after it, has more than %d bytes", ErrGraderReward, keptOutput)
	case last == "":
		return 0, fmt.Errorf("%w: it printed nothing", ErrGraderReward)
	}
	reward, err := strconv.ParseFloat(last, 64)
	if err != nil || math.IsNaN(reward) || math.IsInf(reward, 0) {
		return 0, fmt.Errorf("%w: its last line is %.60q, no finite number", ErrGraderReward, last)
	}
	return reward, nil
}

// tail is a writer that remembers the end of its text.
type tail struct {
	size    int
	kept    []byte
	written int64
}

func (t *tail) Write(p []byte) (int, error) {
	t.written += int64(len(p))
	t.kept = append(t.kept, p...)
	if len(t.kept) > 2*t.size {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-t.size:]...)
	}
	return len(p), nil
}

// cut reports whether the beginning of the text is gone.
func (t *tail) cut() bool { return t.written > int64(t.size) }

func (t *tail) String() string { return string(t.kept[max(0, len(t.kept)-t.size):]) }
