package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/trace"
)

// ErrNotStarted is wrapped when the program could not be started: it isn't there
// or isn't executable, on this worker. No attempt can tell anything about the
// agent then, so it is a fault and no failure.
var ErrNotStarted = errors.New("agent not started")

// Command is an agent that is a program, run once for each attempt.
//
// It finds its task as JSON on standard input (and in FULGURITE_TASK, up to
// 96 KiB), and the address and key of its model in the variables that the usual
// clients read. Its result is the last line of standard output that isn't
// blank; an exit code other than 0 is a failure. What it leaves running is ended.
//
// The program using Command must call ShimMain first in its main function.
type Command struct {
	// Args are the program, found through PATH if it has no slash, and its
	// arguments.
	Args []string
	// Scratch is the directory below which each rollout has its home; by
	// default one of the user in the system's directory for temporary files.
	Scratch string
}

// Launch runs the program under a shim.
func (c Command) Launch(ctx context.Context, job Job) (Result, error) {
	if len(c.Args) == 0 {
		return Result{}, job.infrastructure(fmt.Errorf("%w: no program given", ErrNotStarted))
	}
	if ctx.Err() != nil {
		return Result{}, job.infrastructure(context.Cause(ctx))
	}
	task, err := json.Marshal(job.Task)
	if err != nil {
		return Result{}, job.infrastructure(fmt.Errorf("encode task: %w", err))
	}
	home := job.home
	if home == nil {
		home, err = openHome(ctx, c.Scratch, holder{Execution: job.Execution, Attempt: job.Address.Attempt}, job.Address.RolloutID)
		if err != nil {
			return Result{}, job.infrastructure(err)
		}
		// What can't be removed doesn't change the result; the next attempt meets it.
		defer func() { _ = home.close() }()
	}
	result, err := c.run(ctx, job, home, task)
	if err != nil {
		return Result{Output: result.Output}, job.infrastructure(err)
	}
	return result, nil
}

// run starts the shim and lets go of its lifeline when the agent has to end.
func (c Command) run(ctx context.Context, job Job, home *home, task []byte) (result Result, err error) {
	tooMuch := &exceeded{OutputLimit, fmt.Sprintf("wrote more than %d bytes", job.Limits.OutputBytes)}
	m := &meter{limit: job.Limits.OutputBytes, began: time.Now(), progress: job.progressed}
	limits, stop := limited(ctx, job, m.quiet)
	defer stop()
	bounded, end := context.WithCancelCause(limits)
	defer end(context.Canceled)
	m.over = func() { end(tooMuch) }

	stdout, stderr := &lastLine{meter: m}, &lastBytes{meter: m}
	var printed, complained ends
	s, err := startShim(c.Args, job.Limits.MemoryBytes, home.lock, func(cmd *exec.Cmd) {
		cmd.Env = environment(job, home.path, task)
		if cmd.Dir = job.Directory; cmd.Dir == "" {
			cmd.Dir = home.path
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(task), io.MultiWriter(stdout, &printed), io.MultiWriter(stderr, &complained)
	})
	if err != nil {
		return Result{}, err
	}
	if err := home.note(s.cmd.Process.Pid); err != nil {
		end(err)
	}
	report, err := s.wait(bounded)
	// Nobody writes any more.
	defer func() {
		result.Output.Stdout, result.Output.Stderr = printed.text(), complained.text()
	}()
	var over *exceeded
	switch cause := context.Cause(bounded); {
	case errors.As(cause, &over) && err == nil:
		return failure(over.failure, over.message, report, stderr), nil
	case cause != nil:
		return Result{}, cause
	case err != nil:
		return Result{}, err
	case m.exceeded():
		return failure(tooMuch.failure, tooMuch.message, report, stderr), nil
	case report.Memory > 0:
		return failure(MemoryLimit, fmt.Sprintf("took %d bytes of memory, %d are allowed", report.Memory, job.Limits.MemoryBytes), report, stderr), nil
	case report.Sig != 0:
		return failure(signalled(syscall.Signal(report.Sig)), "ended by signal: "+syscall.Signal(report.Sig).String(), report, stderr), nil
	case report.Code != 0:
		return failure(Exit, fmt.Sprintf("exit code %d", report.Code), report, stderr), nil
	}
	return Result{Text: stdout.text(), Stderr: stderr.text(), Output: trace.Output{LinesBefore: stdout.before()}}, nil
}

// signalled says whose failure it is that a signal ended the agent, when it was not
// ours. Some are sent by the program's own faults, others by people and by a kernel
// that is short of memory.
func signalled(s syscall.Signal) Failure {
	switch s {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP:
		return Killed
	}
	return Exit
}

func failure(f Failure, message string, report shimReport, stderr *lastBytes) Result {
	code := report.Code
	if report.Sig != 0 {
		code = 128 + report.Sig
	}
	return Result{Failure: f, Message: message, Stderr: stderr.text(), ExitCode: code}
}
