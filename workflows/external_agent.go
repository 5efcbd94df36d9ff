package workflows

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"go.temporal.io/api/common/v1"
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
	begin := activities.BeginAttemptInput{RunAgentInput: in.RunAgentInput}
	for wait := firstRetry; ; wait = min(2*wait, longestRetry) {
		out, err := externalAttempt(ctx, in, begin)
		if err != nil || out.Fault == "" {
			return out.RunAgentResult, err
		}
		workflow.GetLogger(ctx).Warn("attempt does not count, trying again", "rollout", in.Rollout.String(), "fault", out.Fault, "in", wait)
		begin.Fault, begin.Faults, begin.Wait = out.Fault, begin.Faults+1, wait
	}
}

// externalAttempt begins one attempt, lets the agent's workers make it, and ends it. It
// ends the attempt even if the rollout is cancelled meanwhile.
func externalAttempt(ctx workflow.Context, in sampleInput, begin activities.BeginAttemptInput) (activities.EndAttemptResult, error) {
	var runner *activities.Runner
	var begun activities.BeginAttemptResult
	summary := fmt.Sprintf("sample %d at version %d", in.Rollout.Sample, in.Version)
	err := workflow.ExecuteActivity(beginOrEnd(ctx, in.Agent, summary), runner.BeginAttempt, begin).Get(ctx, &begun)
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
	end.Reply, end.Ending, end.Message = readPayload(reply.Payload())
}

// readPayload returns the result in a payload, as JSON or text. Only the encodings of
// Temporal's default converters can be read. What a payload codec made, such as ciphertext,
// says nothing about the agent.
func readPayload(p *common.Payload) (reply string, ending activities.Ending, message string) {
	data := p.GetData()
	switch encoding := string(p.GetMetadata()[converter.MetadataEncoding]); encoding {
	case converter.MetadataEncodingNil:
		return "", activities.Returned, ""
	case converter.MetadataEncodingJSON, converter.MetadataEncodingProtoJSON:
	case converter.MetadataEncodingBinary: // bytes, which may be text
		if !utf8.Valid(data) {
			return "", activities.Unreadable, fmt.Sprintf("its result is %d bytes that are no UTF-8: it has to return a text, or {\"result\", \"reward\"}", len(data))
		}
	default:
		return "", activities.Unreadable, fmt.Sprintf("its result has the encoding %.100q, which is not Temporal's own: leave the payload codec or converter of its worker out for the agent's result", encoding)
	}
	if n := len(data); n > replyBytes {
		return "", activities.TooLong, fmt.Sprintf("its result has %d bytes, at most %d can go on through Temporal", n, replyBytes)
	}
	return strings.ToValidUTF8(string(data), "\uFFFD"), activities.Returned, ""
}

// workerFault returns the text of a failure that comes from a worker of the agent and not
// from its code: the worker was shut down, or does not know the activity. Each SDK has its
// own words for that.
func workerFault(cause error) (string, bool) {
	failure, ok := cause.(*temporal.ApplicationError) //nolint:errorlint // deeper ones are the agent's own
	if !ok {
		return "", false
	}
	text := failure.Message()
	switch failure.Type() {
	case "WorkerShutdown": // Python, TypeScript, .NET, Ruby
		return text, true
	case "NotFoundError": // the same; also the name of classes of users
		return text, strings.Contains(text, "is not registered on this worker")
	case "ActivityNotRegisteredError": // Go
		return text, true
	case "java.lang.IllegalArgumentException":
		return text, strings.Contains(text, "is not registered with a worker")
	}
	return text, strings.HasPrefix(text, "unable to find activityType=") // older releases for Go
}

// endingOf finds out from the error of a child or an activity how it ended. Only the
// error right below counts; deeper ones are the agent's own. The exception is an activity
// of the agent that failed through its worker.
func endingOf(err error, limit time.Duration) (activities.Ending, string) {
	var child *temporal.ChildWorkflowExecutionError
	var activity *temporal.ActivityError
	if !errors.As(err, &child) && !errors.As(err, &activity) {
		return activities.Missing, truncate.Head(err.Error(), messageBytes) // such as an id that is taken
	}
	cause := errors.Unwrap(err)
	if inner, ok := cause.(*temporal.ActivityError); ok && child != nil { //nolint:errorlint // the error right below
		below := errors.Unwrap(inner)             // and the one below that
		_, lost := below.(*temporal.TimeoutError) //nolint:errorlint // the same
		_, fault := workerFault(below)
		if lost || fault || encodedFailure(below) {
			cause = below
		}
	}
	if text, ok := workerFault(cause); ok {
		return activities.Lost, truncate.Head(text, messageBytes)
	}
	if encodedFailure(cause) {
		return activities.Unreadable, "its failure is encoded, so nobody knows whether the agent or its worker failed: leave encode_common_attributes out for the agent's worker"
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

// encodedFailure reports whether a failure is one that a payload codec has encoded. The
// SDKs write this text in place of its message.
func encodedFailure(cause error) bool {
	failure, ok := cause.(*temporal.ApplicationError) //nolint:errorlint // deeper ones are the agent's own
	return ok && failure.Message() == "Encoded failure"
}
