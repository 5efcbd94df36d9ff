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
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// RolloutInput asks for the group of one task: all its samples in one step.
type RolloutInput struct {
	Run     string      `json:"run"`
	Kind    record.Kind `json:"kind"`
	Step    int         `json:"step"`
	Task    int         `json:"task"`  // ordinal in the stream of training tasks
	Index   int         `json:"index"` // in the train split
	Policy  string      `json:"policy"`
	Version int         `json:"version"`
	Samples int         `json:"samples"`
	Agent   spec.Agent  `json:"agent"`
	Grader  spec.Grader `json:"grader"`
}

// RolloutResult is the group and its counts.
type RolloutResult struct {
	Group  activities.Group `json:"group"`
	Failed int              `json:"failed"` // attempts that counted although the agent failed
	Calls  int              `json:"calls"`
	Tokens int              `json:"tokens"`
	// Quarantine says why the task can't be trained on, if the reason is the task and not
	// the policy; empty if it can.
	Quarantine string `json:"quarantine,omitempty"`
}

// RolloutWorkflow runs all samples of one task, as many at once as the window lets it.
// Each sample is retried separately; the group is complete or fails. The task has to be
// quarantined if one of its samples can't be graded, or if the agent failed before its
// first model call in all of them.
func RolloutWorkflow(ctx workflow.Context, in RolloutInput) (RolloutResult, error) {
	out := RolloutResult{Group: activities.Group{
		Task: in.Task, Attempts: make([]int, in.Samples), Rewards: make([]float64, in.Samples),
	}}
	if in.Kind == record.Reserve {
		out.Group.Kind = in.Kind
	}
	results := make([]activities.RunAgentResult, in.Samples)
	err := concurrently(ctx, workflow.NewSemaphore(ctx, window), in.Samples, func(ctx workflow.Context, i int) error {
		id := record.RolloutID{Run: in.Run, Kind: in.Kind, Step: in.Step, Task: in.Task, Sample: i}
		r, err := runAgent(ctx, sampleInput{
			RunAgentInput: activities.RunAgentInput{Rollout: id, Index: in.Index, Policy: in.Policy, Version: in.Version},
			Agent:         in.Agent, Grader: in.Grader,
		})
		if err != nil {
			return err
		}
		results[i] = r
		if r.Title != "" {
			workflow.SetCurrentDetails(ctx, fmt.Sprintf("Task `%s`", r.Title))
		}
		out.Group.Attempts[i] = r.Attempt
		if r.Reward != nil {
			out.Group.Rewards[i] = *r.Reward
		}
		out.Calls += r.Calls
		out.Tokens += r.Tokens
		if r.Outcome == record.AgentFailed {
			out.Failed++
		}
		return nil
	})
	out.Quarantine = quarantine(results)
	return out, err
}

// quarantine returns the reason to quarantine a task with these samples, or "".
func quarantine(samples []activities.RunAgentResult) string {
	early := 0
	for _, r := range samples {
		if r.Reward == nil {
			return r.TaskFault // can't be graded
		}
		if r.TaskFault != "" {
			early++
		}
	}
	if early == len(samples) {
		return samples[0].TaskFault
	}
	return ""
}

type sampleInput struct {
	activities.RunAgentInput
	Agent  spec.Agent
	Grader spec.Grader
}

// runAgent runs one sample until it has a reward, or until it can have none because of a
// fault of its task.
func runAgent(ctx workflow.Context, in sampleInput) (activities.RunAgentResult, error) {
	var runner *activities.Runner
	r, err := attempted(ctx, in)
	if err != nil || r.Reward != nil || r.TaskFault != "" {
		return r, err
	}
	var grade activities.GradeRolloutResult
	err = workflow.ExecuteActivity(grading(ctx, in.Agent, in.Grader), runner.GradeRollout, activities.GradeRolloutInput{
		Address: record.Address{RolloutID: in.Rollout, Attempt: r.Attempt}, Index: in.Index,
	}).Get(ctx, &grade)
	if grade.TaskFault != "" {
		r.TaskFault = grade.TaskFault
		return r, err
	}
	r.Reward = &grade.Reward
	return r, err
}

// attempted runs one sample to the end of the attempt that counts.
func attempted(ctx workflow.Context, in sampleInput) (activities.RunAgentResult, error) {
	if in.Agent.Temporal != nil {
		return runExternalAgent(ctx, in)
	}
	var runner *activities.Runner
	var r activities.RunAgentResult
	summary := fmt.Sprintf("sample %d at version %d", in.Rollout.Sample, in.Version)
	err := workflow.ExecuteActivity(rollouts(ctx, in.Agent, summary), runner.RunAgent, in.RunAgentInput).Get(ctx, &r)
	return r, err
}

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
		Address: record.Address{RolloutID: in.Rollout, Attempt: begun.Attempt}, Index: in.Index,
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

// Reason says in words why a workflow failed: what went wrong, and in which activity
// of which child. The words that Temporal wraps around it are left out.
func Reason(err error) string {
	where, words := failure(err)
	if where == "" {
		return words
	}
	return where + ": " + words
}

// Failure returns the result of a run that ended with an error.
func Failure(err error) record.Failure {
	var application *temporal.ApplicationError
	last := errors.As(err, &application) && application.Type() == activities.ErrTypeFinal
	return record.Failure{Error: Reason(err), Detail: err.Error(), Final: last}
}

// failure separates the error of a workflow into the activity and the child that
// failed, and what went wrong there.
func failure(err error) (where, words string) {
	words = err.Error()
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		switch e := cause.(type) { //nolint:errorlint // each error of the chain in turn
		case *temporal.ChildWorkflowExecutionError:
			where, words = "workflow "+e.WorkflowID(), e.Error()
		case *temporal.ActivityError:
			if where != "" {
				where = " of " + where
			}
			where, words = e.ActivityType().GetName()+where, e.Error()
		case *temporal.ApplicationError:
			words = e.Message()
		case *temporal.TimeoutError, *temporal.TerminatedError, *temporal.CanceledError, *temporal.PanicError:
			words = cause.Error()
		}
	}
	return where, words
}
