package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/spec"
)

// childStarts is how often a child is started if it is terminated or times out each time.
// The waits between the starts add up to half an hour. After that, ending the child
// counts as a decision.
const childStarts = 12

// stoppedError says that a person stopped only a child, and not its run.
type stoppedError struct{ why string }

// Error is the reason, for the record.
func (e *stoppedError) Error() string { return e.why }

// runChild runs a child of a run to its end. It starts a child again that was terminated
// or timed out: its work is on record, so the outcome is the same. A cancelled child
// becomes a *stoppedError, unless ctx was cancelled too.
func runChild[Result any](ctx workflow.Context, id, summary string, child, in any) (Result, error) {
	options := withChild(ctx, workflow.ChildWorkflowOptions{WorkflowID: id, StaticSummary: summary})
	wait := firstRetry
	for started := 1; ; started++ {
		var r Result
		err := startWhenFree(ctx, func() error { return workflow.ExecuteChildWorkflow(options, child, in).Get(ctx, &r) })
		stopped, interrupted := stoppedBy(err)
		if stopped == "" || ctx.Err() != nil {
			return r, err
		}
		if !interrupted {
			return r, &stoppedError{fmt.Sprintf("%s was %s in Temporal", id, stopped)}
		}
		if started == childStarts {
			return r, &stoppedError{fmt.Sprintf("%s was %s in Temporal, as the %d times before", id, stopped, started-1)}
		}
		workflow.GetLogger(ctx).Warn("child was stopped, starting it again", "child", id, "stopped", stopped, "in", wait)
		if err := workflow.Sleep(ctx, wait); err != nil {
			return r, err
		}
		wait = min(2*wait, longestRetry)
	}
}

// stoppedBy says in a word how a child was stopped from outside, and whether that only
// interrupted it. The word is empty if the child ended by itself. Only the error right
// below the child's counts.
func stoppedBy(err error) (word string, interrupted bool) {
	var child *temporal.ChildWorkflowExecutionError
	if !errors.As(err, &child) {
		return "", false
	}
	switch errors.Unwrap(child).(type) { //nolint:errorlint // the error right below
	case *temporal.TerminatedError:
		return "terminated", true
	case *temporal.TimeoutError:
		return "timed out", true
	case *temporal.CanceledError:
		return "cancelled", false
	}
	return "", false
}

// forChildren returns the parts of a spec's agent and grader that the workflows of
// rollouts read. Workers read the rest in the store: it may hold secrets, and Temporal
// keeps the histories of children.
func forChildren(s spec.Spec) (spec.Agent, spec.Grader) {
	limits := s.Agent.Limits
	return spec.Agent{
		Queue: s.Agent.Queue, Temporal: s.Agent.Temporal,
		Limits: spec.AgentLimits{Seconds: limits.Seconds, IdleSeconds: limits.IdleSeconds},
	}, spec.Grader{Type: s.Grader.Type, Seconds: s.Grader.Seconds}
}

// The waits between checks whether a child of an earlier execution has ended.
const (
	firstPoll   = time.Second
	longestPoll = 30 * time.Second
)

// startWhenFree retries to start a child while another workflow has its id: a child
// that an execution before a reset started and that still runs. Its work is on record,
// so nothing is done twice when the id is free.
func startWhenFree(ctx workflow.Context, child func() error) error {
	for wait := firstPoll; ; wait = min(2*wait, longestPoll) {
		err := child()
		if !temporal.IsWorkflowExecutionAlreadyStartedError(err) {
			return err
		}
		if err := workflow.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// concurrently runs f for 0 to n−1, as many at once as limit has slots, and waits for
// all. After the first error it starts no other, cancels those under way, since their
// results could not be used, and returns that error.
func concurrently(ctx workflow.Context, limit workflow.Semaphore, n int, f func(ctx workflow.Context, i int) error) error {
	running, cancel := workflow.WithCancel(ctx)
	defer cancel()
	wg := workflow.NewWaitGroup(ctx)
	var first error
	for i := range n {
		if err := limit.Acquire(running, 1); err != nil {
			if first == nil {
				return err // ctx was cancelled
			}
			break
		}
		wg.Add(1)
		workflow.Go(running, func(ctx workflow.Context) {
			defer wg.Done()
			defer limit.Release(1)
			err := f(ctx, i)
			if err == nil || first != nil {
				return
			}
			first = err
			if ctx.Err() == nil {
				cancel()
			}
		})
	}
	wg.Wait(ctx)
	return first
}
