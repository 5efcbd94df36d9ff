package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fulgurite/fulgurite/agent/process"
	"github.com/fulgurite/fulgurite/internal/truncate"
)

// ErrNotStarted is wrapped when the program could not be started: on this worker, it does
// not exist or isn't executable. The attempt then says nothing about the agent, so this
// is a fault and no failure.
var ErrNotStarted = process.ErrNotStarted

// Command is an agent that is a program, run once for each attempt.
//
// It finds its task as JSON on standard input (and in FULGURITE_TASK, up to
// 96 KiB), and the address and key of its model in the variables that the usual
// clients read. Its result is the last line of standard output that isn't blank; an exit
// code other than 0 is a failure, except for 75, which asks for another attempt. Processes that it leaves running are ended.
//
// The program using Command must call ShimMain first in its main function.
type Command struct {
	// Args are the program, found through PATH if it has no slash, and its
	// arguments.
	Args []string
	// Scratch is the directory below which each rollout has its home. If it is empty,
	// that is a directory of the user below the system's directory for temporary files.
	Scratch string
}

// ShimMain makes this process the supervisor of an agent and doesn't return, if it was
// started as one; otherwise it does nothing. It must come first in the main function of
// every program (and TestMain of every test) that launches commands.
func ShimMain() { process.ShimMain() }

// Conceal keeps other processes of the user, such as agents, from reading this one's
// environment and memory, where keys and passwords are. It works only on Linux.
func Conceal() error { return process.Conceal() }

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
		home, err = process.OpenHome(ctx, c.Scratch, process.Owner{Execution: job.Execution, Attempt: job.Address.Attempt}, job.Address.RolloutID)
		if err != nil {
			return Result{}, job.infrastructure(err)
		}
		// A home that can't be removed doesn't change the result; the next attempt
		// reports it.
		defer func() { _ = home.Close() }()
	}
	result, err := c.run(ctx, job, home, task)
	if err != nil {
		return Result{Output: result.Output}, job.infrastructure(err)
	}
	return result, nil
}

// run starts the shim and has it end the agent when its context ends.
func (c Command) run(ctx context.Context, job Job, home *process.Home, task []byte) (result Result, err error) {
	tooMuch := &LimitError{OutputLimit, fmt.Sprintf("wrote more than %d bytes", job.Limits.OutputBytes)}
	bounded, end := context.WithCancelCause(ctx)
	defer end(context.Canceled)
	output := process.NewOutput(job.Limits.OutputBytes, job.progressed, func() { end(tooMuch) })
	bounded, stop := limited(bounded, job, output.Quiet)
	defer stop()

	args, err := wrapped(c.Args, job)
	if err != nil {
		return Result{}, err
	}
	shim, err := process.Start(args, job.Limits.MemoryBytes, home, func(cmd *exec.Cmd) {
		cmd.Env = environment(job, home.Path, task)
		if cmd.Dir = job.Directory; cmd.Dir == "" {
			cmd.Dir = home.Path
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(task), output.Stdout, output.Stderr
	})
	if err != nil {
		return Result{}, err
	}
	if err := home.Record(shim); err != nil {
		end(err)
	}
	report, err := shim.Wait(bounded)
	// The output is complete now.
	defer func() {
		printed := output.Record()
		result.Output.Stdout, result.Output.Stderr = printed.Stdout, printed.Stderr
	}()
	failure := func(f Failure, message string) (Result, error) {
		code := report.Code
		if report.Signal != 0 {
			code = 128 + report.Signal
		}
		return Result{Failure: f, Message: message, Stderr: output.StderrEnd(), ExitCode: code}, nil
	}
	var over *LimitError
	switch cause := context.Cause(bounded); {
	case errors.As(cause, &over) && err == nil:
		return failure(over.Failure, over.Message)
	case cause != nil:
		return Result{}, cause
	case err != nil:
		return Result{}, err
	case output.Exceeded():
		return failure(tooMuch.Failure, tooMuch.Message)
	case report.Memory > 0:
		return failure(MemoryLimit, fmt.Sprintf("took %d bytes of memory, %d are allowed", report.Memory, job.Limits.MemoryBytes))
	case report.Signal != 0:
		signal := syscall.Signal(report.Signal)
		return failure(signalFailure(signal), "ended by signal: "+signal.String())
	case report.Code == retryCode:
		return failure(Retry, lastWords(output))
	case report.Code != 0:
		return failure(Exit, fmt.Sprintf("exit code %d", report.Code))
	}
	result = resultOf(output.LastLine())
	result.Stderr, result.Output.LinesBefore = output.StderrEnd(), output.LinesBefore()
	return result, nil
}

// lastWords returns the reason of a program that asks for another attempt: its last line on
// standard error, or else on standard output.
func lastWords(output *process.Output) string {
	for _, text := range []string{output.StderrEnd(), resultOf(output.LastLine()).Text} {
		lines := strings.Split(strings.TrimSpace(text), "\n")
		if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
			return truncate.Head(strings.ToValidUTF8(last, "\uFFFD"), messageBytes)
		}
	}
	return fmt.Sprintf("exit code %d, without a reason on standard error", retryCode)
}

// wrapped returns the command line of a job with the words that its workspace puts before
// it. The command may then see files at other paths and begin in another directory. So
// the program is looked up here, and arguments that name files of the job's directory
// become absolute.
func wrapped(args []string, job Job) ([]string, error) {
	if len(job.Wrap) == 0 {
		return args, nil
	}
	out := slices.Concat(job.Wrap, args)
	for i, word := range args[1:] {
		path := filepath.Join(job.Directory, word)
		if stat, err := os.Stat(path); job.Directory != "" && !filepath.IsAbs(word) && err == nil && stat.Mode().IsRegular() {
			out[len(job.Wrap)+1+i] = path
		}
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	out[len(job.Wrap)] = program
	return out, nil
}

// signalFailure classifies the end of an agent by a signal that was not ours. Some
// signals come from the program's own faults, others from people and from a kernel that
// is short of memory.
func signalFailure(s syscall.Signal) Failure {
	switch s {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP:
		return Killed
	}
	return Exit
}
