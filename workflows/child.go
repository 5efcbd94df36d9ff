package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/spec"
)

// childStarts is how often a child is started that somebody ends each time. The
// waits between come to half an hour; then it is taken for a decision.
const childStarts = 12

// stoppedError says that a person stopped a child alone, and not its run.
type stoppedError struct{ why string }

// Error is the reason, for the record.
func (e *stoppedError) Error() string { return e.why }

// runChild runs a child of a run to its end. One that was terminated or timed out is
// started again: what it had done is on record, so it comes to what it would have
// come to. One that was cancelled is a *stoppedError, unless what waits for it was
// cancelled too.
func runChild[Result any](ctx workflow.Context, id, summary string, child, in any) (Result, error) {
	options := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: id, StaticSummary: summary})
	wait := firstAgain
	for started := 1; ; started++ {
		var r Result
		err := onceFree(ctx, func() error { return workflow.ExecuteChildWorkflow(options, child, in).Get(ctx, &r) })
		stopped, interrupted := stoppedBy(err)
		if stopped == "" || ctx.Err() != nil || !restarts(ctx) {
			return r, err
		}
		if !interrupted {
			return r, &stoppedError{fmt.Sprintf("%s was %s in Temporal", id, stopped)}
		}
		if started == childStarts {
			return r, &stoppedError{fmt.Sprintf("%s was %s in Temporal, as each of %d times before", id, stopped, started-1)}
		}
		workflow.GetLogger(ctx).Warn("child was stopped, starting it again", "child", id, "stopped", stopped, "in", wait)
		if err := workflow.Sleep(ctx, wait); err != nil {
			return r, err
		}
		wait = min(2*wait, longAgain)
	}
}

// stoppedBy says in a word how somebody stopped a child, and whether that interrupted
// it only; empty if it ended by itself. Only the error right below the child's counts.
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

// restarts is false for runs that ended, before children were started again, because
// one was stopped.
func restarts(ctx workflow.Context) bool {
	return workflow.GetVersion(ctx, "restart-children", workflow.DefaultVersion, 1) >= 1
}

// forChildren are the parts of a spec's agent and grader that the workflows of
// rollouts read. Workers read the rest in the store: it may hold secrets, and a
// child's history is kept for as long as its namespace says.
func forChildren(s spec.Spec) (spec.Agent, spec.Grader) {
	limits := s.Agent.Limits
	return spec.Agent{
		Queue: s.Agent.Queue, Temporal: s.Agent.Temporal,
		Limits: spec.AgentLimits{Seconds: limits.Seconds, IdleSeconds: limits.IdleSeconds},
	}, spec.Grader{Type: s.Grader.Type, Seconds: s.Grader.Seconds}
}

// Between looks at whether a child of an earlier execution has ended.
const (
	firstLook = time.Second
	longLook  = 30 * time.Second
)

// onceFree starts a child again for as long as another workflow has its id: a child
// that an execution before a reset started, and that the reset left running. What
// that one does is on record, so that nothing is done twice when the id is free.
func onceFree(ctx workflow.Context, child func() error) error {
	for wait := firstLook; ; wait = min(2*wait, longLook) {
		err := child()
		if !temporal.IsWorkflowExecutionAlreadyStartedError(err) {
			return err
		}
		if err := workflow.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}
