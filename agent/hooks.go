package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/fulgurite/fulgurite/agent/process"
	"github.com/fulgurite/fulgurite/internal/truncate"
	"github.com/fulgurite/fulgurite/record"
)

// HookLimit is how long a hook may take.
const HookLimit = 5 * time.Minute

// ErrBefore is wrapped when Hooks.Before failed, so that the agent was not launched.
var ErrBefore = errors.New("before the attempt")

// Hooks run in the worker around each attempt, for example to start what the agent needs
// and to clean up. Both see the job, with the attempt's own directory as its Home. A nil
// hook does nothing.
type Hooks struct {
	// Before runs first. When it fails, the agent is not launched, and the attempt
	// is a fault.
	Before func(ctx context.Context, job Job) error
	// After runs in any case: after the agent, after a Before that failed, and when the
	// attempt was ended from outside. Its error changes no outcome.
	After func(ctx context.Context, job Job, outcome record.Outcome) error
}

// HookCommands returns hooks that run programs as Command runs an agent's, with the same
// environment. FULGURITE_HOME is the attempt's directory; after the attempt,
// FULGURITE_OUTCOME says how it ended. An exit code other than 0 is a failure.
func HookCommands(before, after []string) Hooks {
	var h Hooks
	if len(before) > 0 {
		h.Before = func(ctx context.Context, job Job) error { return runHook(ctx, before, job, nil) }
	}
	if len(after) > 0 {
		h.After = func(ctx context.Context, job Job, outcome record.Outcome) error {
			return runHook(ctx, after, job, map[string]string{"FULGURITE_OUTCOME": string(outcome)})
		}
	}
	return h
}

func runHook(ctx context.Context, args []string, job Job, more map[string]string) error {
	vars := map[string]string{}
	maps.Copy(vars, job.Environment)
	maps.Copy(vars, more)
	job.Environment, job.Limits = vars, Limits{Time: HookLimit}
	job.Waited, job.Idle = nil, nil // these are the agent's
	result, err := Command{Args: args}.Launch(ctx, job)
	if err == nil && result.Failed() {
		err = fmt.Errorf("%s: %s: %s", args[0], result.Message, result.Stderr)
	}
	return err
}

// Around returns a launcher with hooks around each attempt. scratch is as in Command.
func Around(l Launcher, h Hooks, scratch string) Launcher { return hooked{l, h, scratch} }

type hooked struct {
	inner   Launcher
	hooks   Hooks
	scratch string
}

// Launch implements Launcher.
func (h hooked) Launch(ctx context.Context, job Job) (Result, error) {
	closeHome, err := job.openHome(ctx, h.scratch)
	if err != nil {
		return Result{}, err
	}
	result, err := h.launch(ctx, job)
	if after := h.after(ctx, job, result, err); after != nil {
		after = fmt.Errorf("after the attempt: %w", after)
		if err != nil {
			err = errors.Join(err, after)
		}
		result.Note = truncate.Head(after.Error(), messageBytes)
	}
	closeHome()
	return result, err
}

// openHome gives the job its home, unless it has one. closeHome releases the home that
// openHome made.
func (j *Job) openHome(ctx context.Context, scratch string) (closeHome func(), err error) {
	if j.home != nil {
		return func() {}, nil
	}
	home, err := process.OpenHome(ctx, scratch, process.Owner{Execution: j.Execution, Attempt: j.Address.Attempt}, j.Address.RolloutID)
	if err != nil {
		return nil, j.infrastructure(err)
	}
	j.home, j.Home = home, home.Path
	// A home that can't be removed doesn't change the result; the next attempt reports
	// it.
	return func() { _ = home.Close() }, nil
}

func (h hooked) launch(ctx context.Context, job Job) (Result, error) {
	if h.hooks.Before != nil {
		if err := h.hooks.Before(ctx, job); err != nil {
			return Result{}, job.infrastructure(fmt.Errorf("%w: %w", ErrBefore, err))
		}
	}
	return h.inner.Launch(ctx, job)
}

// after also runs when ctx has ended, so that everything is cleaned up.
func (h hooked) after(ctx context.Context, job Job, result Result, err error) error {
	if h.hooks.After == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), HookLimit)
	defer cancel()
	outcome := record.OutcomeCompleted
	switch {
	case err != nil, result.Failure == Retry:
		outcome = record.InfraFault
	case result.Failed():
		outcome = record.AgentFailed
	}
	return h.hooks.After(ctx, job, outcome)
}
