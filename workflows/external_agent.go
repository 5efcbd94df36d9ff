package workflows

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/internal/truncate"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// The waits between attempts that ended in a fault. The longest keeps the history of a
// day of faults within a workflow's limit.
const (
	firstRetry   = time.Second
	longestRetry = 5 * time.Minute
)

// replyBytes bounds the agent's result that is passed to EndAttempt: as JSON within
// JSON it can be almost twice as long, and Temporal's limit is 2 MiB.
const replyBytes = 1 << 20

// messageBytes bounds the agent's error in the store.
const messageBytes = 8 << 10

// runExternalAgent runs a sample whose agent is a user's own workflow or activity,
// attempt after attempt until one counts.
func runExternalAgent(ctx workflow.Context, in sampleInput) (activities.RunAgentResult, error) {
	for wait := firstRetry; ; wait = min(2*wait, longestRetry) {
		out, err := externalAttempt(ctx, in)
		if err != nil || out.Fault == "" {
			return out.RunAgentResult, err
		}
		workflow.GetLogger(ctx).Warn("attempt does not count, trying again", "rollout", in.Rollout.String(), "fault", out.Fault, "in", wait)
		if err := workflow.Sleep(ctx, wait); err != nil {
			return activities.RunAgentResult{}, err
		}
	}
}

// externalAttempt begins one attempt, lets the agent's workers make it, and ends it. It
// ends the attempt even if the rollout is cancelled meanwhile.
func externalAttempt(ctx workflow.Context, in sampleInput) (activities.EndAttemptResult, error) {
	var runner *activities.Runner
	var begun activities.BeginAttemptResult
	summary := fmt.Sprintf("sample %d at version %d", in.Rollout.Sample, in.Version)
	err := workflow.ExecuteActivity(beginOrEnd(ctx, in.Agent, summary), runner.BeginAttempt, in.RunAgentInput).Get(ctx, &begun)
	if err != nil {
		return activities.EndAttemptResult{}, err
	}
	if begun.Ended != nil {
		return activities.EndAttemptResult{RunAgentResult: *begun.Ended}, nil
	}
	end := activities.EndAttemptInput{
		Address: trace.Address{RolloutID: in.Rollout, Attempt: begun.Attempt}, Index: in.Index,
		BaseURL: begun.Brief.BaseURL, Key: begun.Brief.APIKey,
	}
	callAgent(ctx, in.Agent, begun.Brief, summary, &end)
	cancelled := ctx.Err()
	if cancelled != nil {
		var release workflow.CancelFunc
		ctx, release = workflow.NewDisconnectedContext(ctx)
		defer release()
	}
	var out activities.EndAttemptResult
	err = workflow.ExecuteActivity(beginOrEnd(ctx, in.Agent, summary), runner.EndAttempt, end).Get(ctx, &out)
	if cancelled != nil {
		err = cancelled
	}
	return out, err
}

// callAgent starts the agent's workflow or activity with its environment as the only
// argument, and notes in end how it ended.
func callAgent(ctx workflow.Context, a spec.Agent, environment any, summary string, end *activities.EndAttemptInput) {
	var f workflow.Future
	limit := time.Duration(a.Limits.Seconds * float64(time.Second))
	if a.Temporal.Workflow != "" {
		end.Workflow = end.Address.String()
		f = workflow.ExecuteChildWorkflow(agentWorkflow(ctx, *a.Temporal, end.Workflow, limit, summary), a.Temporal.Workflow, environment)
	} else {
		idle := time.Duration(a.Limits.IdleSeconds * float64(time.Second))
		f = workflow.ExecuteActivity(agentActivity(ctx, *a.Temporal, limit, idle, summary), a.Temporal.Activity, environment)
	}
	var reply converter.RawValue
	if err := f.Get(ctx, &reply); err != nil {
		end.Ending, end.Message = endingOf(err, limit)
		return
	}
	if n := len(reply.Payload().GetData()); n > replyBytes {
		end.Ending, end.Message = activities.Raised, fmt.Sprintf("its result has %d bytes: at most %d can go on through Temporal", n, replyBytes)
		return
	}
	end.Reply = strings.ToValidUTF8(string(reply.Payload().GetData()), "\uFFFD")
}

// endingOf finds out from the error of a child or an activity how it ended. Only the
// error right below counts; deeper ones are the agent's own. The exception is a timed-out
// activity of the agent, whose worker may be lost.
func endingOf(err error, limit time.Duration) (activities.Ending, string) {
	var child *temporal.ChildWorkflowExecutionError
	var activity *temporal.ActivityError
	if !errors.As(err, &child) && !errors.As(err, &activity) {
		return activities.Missing, truncate.Head(err.Error(), messageBytes) // such as an id that is taken
	}
	cause := errors.Unwrap(err)
	if inner, ok := cause.(*temporal.ActivityError); ok && child != nil { //nolint:errorlint // the error right below
		if lost, ok := errors.Unwrap(inner).(*temporal.TimeoutError); ok { //nolint:errorlint // and the one below that
			cause = lost
		}
	}
	switch cause.(type) { //nolint:errorlint // the error right below
	case *temporal.TimeoutError:
		return activities.TimedOut, fmt.Sprintf("no result after %s: it is still running, or its worker is gone", limit)
	case *temporal.TerminatedError:
		return activities.Terminated, "it was terminated"
	case *temporal.CanceledError:
		if child != nil {
			return activities.Cancelled, "the agent's workflow was cancelled in Temporal"
		}
		return activities.Terminated, "it was cancelled"
	case *temporal.PanicError:
		return activities.Panicked, truncate.Head(cause.Error(), messageBytes)
	case nil:
		return activities.Missing, truncate.Head(err.Error(), messageBytes)
	}
	return activities.Raised, truncate.Head(cause.Error(), messageBytes)
}
