package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"
)

// ErrTests is wrapped when the tests of a workspace gave no reward. That is a fault,
// since it is not known how well the agent did.
var ErrTests = errors.New("tests of the workspace")

// Workspace is where an agent works in one attempt, and where tests find its reward.
type Workspace interface {
	// Wrap returns the words to put before a command so that it runs in the workspace.
	Wrap() []string
	// Environment are variables for the agent.
	Environment() (map[string]string, error)
	// Limit is the most time that the task gives an agent; 0 is no limit.
	Limit() time.Duration
	// Tests returns the command that runs the tests in the workspace, its environment,
	// and the most time that it may take. It is called after the agent has ended.
	Tests(ctx context.Context) (command []string, environment map[string]string, limit time.Duration, err error)
	// Reward returns the reward that the tests give.
	Reward(ctx context.Context) (float64, error)
	// Close releases what isn't in the attempt's home.
	Close() error
}

// Workspaces opens the workspace of a job, which has its Home.
type Workspaces interface {
	Open(ctx context.Context, job Job) (Workspace, error)
	// OfMachine reports whether an error is the fault of this machine, so that it says
	// nothing about the task.
	OfMachine(err error) bool
}

// InWorkspace returns a launcher whose agents, which are commands, each work in their own
// workspace. When an agent has ended by itself, tests give its Reward; an agent that
// failed is not tested. The error wraps ErrBefore if a workspace can't be opened, and
// ErrTests if tests give no reward, unless the machine is at fault. scratch is as in
// Command.
func InWorkspace(l Launcher, w Workspaces, scratch string) Launcher {
	return workspaceLauncher{l, w, scratch}
}

type workspaceLauncher struct {
	inner      Launcher
	workspaces Workspaces
	scratch    string
}

// Launch implements Launcher.
func (l workspaceLauncher) Launch(ctx context.Context, job Job) (Result, error) {
	closeHome, err := job.openHome(ctx, l.scratch)
	if err != nil {
		return Result{}, err
	}
	defer closeHome()
	w, err := l.workspaces.Open(ctx, job)
	if err != nil {
		return Result{}, job.infrastructure(l.because(ErrBefore, err))
	}
	result, err := l.launch(ctx, job, w)
	if closing := w.Close(); err == nil && closing != nil {
		result.Note = closing.Error() // the next attempt removes it
	}
	return result, err
}

func (l workspaceLauncher) launch(ctx context.Context, job Job, w Workspace) (Result, error) {
	environment, err := w.Environment()
	if err != nil {
		return Result{}, job.infrastructure(l.because(ErrBefore, err))
	}
	inside := job
	inside.Wrap, inside.Environment = w.Wrap(), environment
	maps.Copy(inside.Environment, job.Environment)
	if limit := w.Limit(); limit > 0 && (job.Limits.Time == 0 || limit < job.Limits.Time) {
		inside.Limits.Time = limit
	}
	result, err := l.inner.Launch(ctx, inside)
	if err != nil || result.Failed() {
		return result, err
	}
	reward, err := l.test(ctx, job, w)
	if err != nil {
		return Result{Output: result.Output}, job.infrastructure(l.because(ErrTests, err))
	}
	result.Reward = &reward
	return result, nil
}

// because wraps an error in the reason, unless the machine is at fault.
func (l workspaceLauncher) because(reason, err error) error {
	if l.workspaces.OfMachine(err) {
		return err
	}
	return fmt.Errorf("%w: %w", reason, err)
}

// testOutput is the most bytes that tests may print.
const testOutput = 64 << 20

// test runs the tests, which have neither the agent's model nor its limits.
func (l workspaceLauncher) test(ctx context.Context, job Job, w Workspace) (float64, error) {
	command, environment, limit, err := w.Tests(ctx)
	if err != nil {
		return 0, err
	}
	job.BaseURL, job.Key, job.Environment, job.Directory = "", "", environment, ""
	job.Limits, job.Waited, job.Idle = Limits{Time: limit, OutputBytes: testOutput}, nil, nil
	result, err := Command{Args: command}.Launch(ctx, job)
	if err != nil {
		return 0, err
	}
	if result.Failure == Timeout || result.Failure == OutputLimit {
		return 0, fmt.Errorf("%s: %s", result.Message, result.Stderr)
	}
	reward, err := w.Reward(ctx) // whatever their exit code
	if err != nil && result.Failed() {
		err = fmt.Errorf("%w; the tests ended with %s: %s", err, result.Message, result.Stderr)
	}
	return reward, err
}
