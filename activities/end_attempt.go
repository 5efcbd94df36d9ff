package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/forwarder"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/internal/truncate"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

// Ending is how the workflow or activity of an agent ended.
type Ending string

// The endings.
const (
	Returned   Ending = ""           // the agent returned a result
	Raised     Ending = "error"      // the agent returned an error
	Panicked   Ending = "panic"      // the agent panicked
	TimedOut   Ending = "timeout"    // its time ran out, or its worker was lost
	Terminated Ending = "terminated" // a person terminated it
	Cancelled  Ending = "cancelled"  // a person cancelled it, and so its task
	Missing    Ending = "missing"    // it could not be started
	Lost       Ending = "worker"     // its worker was shut down, or does not know it
	Unreadable Ending = "unreadable" // what it returned is encoded
	TooLong    Ending = "too long"   // its result
)

// EndAttemptInput describes how the agent of an attempt ended.
type EndAttemptInput struct {
	Address record.Address `json:"address"`
	Index   int            `json:"index"`
	BaseURL string         `json:"base_url"` // of the session that BeginAttempt opened
	Key     string         `json:"api_key"`
	Ending  Ending         `json:"ending,omitempty"`
	Reply   string         `json:"reply,omitempty"` // the agent's result, as JSON or text
	Message string         `json:"message,omitempty"`
	// Workflow is the id of the agent's workflow, if it is one.
	Workflow string `json:"workflow,omitempty"`
}

// EndAttemptResult is the result of the attempt.
type EndAttemptResult struct {
	RunAgentResult
	// Fault says why the attempt does not count and has to be repeated. It is empty if
	// the attempt counts.
	Fault string `json:"fault,omitempty"`
}

// EndAttempt ends an attempt that BeginAttempt began: it asks the forwarder for faults
// that the agent could have seen, grades the agent's result and seals the attempt. The
// attempt counts only if the forwarder confirms that there was no such fault.
func (r *Runner) EndAttempt(ctx context.Context, in EndAttemptInput) (_ EndAttemptResult, err error) {
	defer temporalError(&err)
	v, task, err := r.task(ctx, in.Address.RolloutID, in.Index)
	if err != nil {
		return EndAttemptResult{}, err
	}
	before, err := r.Attempts.Attempt(ctx, in.Address)
	if err != nil {
		return EndAttemptResult{}, fmt.Errorf("read attempt %s: %w", in.Address, err)
	}
	if in.Ending == Cancelled {
		return r.cancelled(ctx, in, before)
	}
	if before.Outcome != record.OutcomeRunning { // the worker that sealed it could no longer report that to Temporal
		return r.ended(ctx, before, task)
	}
	a := record.Attempt{Address: in.Address, TaskID: task.ID, Returned: time.Now()}
	settled, fault := forwarder.CloseExternal(ctx, in.BaseURL, in.Key, r.TLS)
	var result agent.Result
	if fault == nil {
		a.PartlyRead = settled.PartlyRead
		result, fault = r.assess(ctx, in, v.spec.Grader, settled)
	}
	if fault == nil {
		fault = r.checkSampled(ctx, in.Address)
	}
	if fault == nil && result.Failure == agent.Retry {
		fault, a.Failure = askedAgain(result), string(agent.Retry)
	}
	if fault == nil && result.Failure.Unclear() {
		fault = r.classify(ctx, in.Address, &result)
		a.Failure = string(result.Failure)
	}
	if ctx.Err() != nil {
		return EndAttemptResult{}, ctx.Err()
	}
	if fault != nil {
		a.Outcome, a.Error = record.InfraFault, fault.Error()
	} else if err := r.fillOutcome(ctx, v.spec, task, result, &a); err != nil {
		return EndAttemptResult{}, fmt.Errorf("grade attempt %s: %w", in.Address, err)
	}
	err = r.Attempts.SealAttempt(ctx, a)
	switch {
	case errors.Is(err, record.ErrFenced):
		return EndAttemptResult{Fault: truncate.Ellipsis(err.Error(), failureBytes)}, nil // a later one has begun, and no worker has it
	case err != nil:
		return EndAttemptResult{}, fmt.Errorf("seal attempt %s: %w", in.Address, err)
	case permanent(fault):
		return EndAttemptResult{}, fmt.Errorf("attempt %s: %w", in.Address, fault)
	}
	if fault != nil && ctx.Err() == nil {
		if exhausted, err := r.exhausted(ctx, a.Address, a.Failure); err != nil {
			return EndAttemptResult{}, err
		} else if exhausted {
			return uncounted(a), nil
		}
	}
	return r.ended(ctx, a, task)
}

// cancelled ends an attempt whose agent a person has cancelled. The person meant the
// task, so it is not tried again.
func (r *Runner) cancelled(ctx context.Context, in EndAttemptInput, a record.Attempt) (EndAttemptResult, error) {
	_, _ = forwarder.CloseExternal(ctx, in.BaseURL, in.Key, r.TLS) // what the agent could have seen doesn't matter, and the session also ends without this call
	if a.Outcome == record.OutcomeRunning {
		a = record.Attempt{Address: a.Address, TaskID: a.TaskID, Outcome: record.InfraFault, Error: in.Message}
		if err := r.Attempts.SealAttempt(ctx, a); err != nil && !errors.Is(err, record.ErrFenced) {
			return EndAttemptResult{}, fmt.Errorf("seal attempt %s: %w", in.Address, err)
		}
	}
	a.Error = in.Message
	return uncounted(a), nil
}

// uncounted returns the result of an attempt that does not count and is not made again.
func uncounted(a record.Attempt) EndAttemptResult {
	return EndAttemptResult{RunAgentResult: RunAgentResult{Attempt: a.Attempt, Outcome: record.InfraFault, TaskFault: truncate.Ellipsis(a.Error, failureBytes)}}
}

// ended returns the result of a sealed attempt.
func (r *Runner) ended(ctx context.Context, a record.Attempt, task tasks.Task) (EndAttemptResult, error) {
	if a.Outcome == record.InfraFault {
		return EndAttemptResult{Fault: truncate.Ellipsis(a.Error, failureBytes)}, nil
	}
	out, err := r.outcome(ctx, a.Address)
	out.Title = titleOf(task, a.Address)
	return EndAttemptResult{RunAgentResult: out}, err
}

// assess returns the agent's result, or an error if a fault may be the reason for it.
func (r *Runner) assess(ctx context.Context, in EndAttemptInput, g spec.Grader, settled forwarder.SessionReport) (agent.Result, error) {
	switch {
	case settled.Fault != "":
		return agent.Result{}, errors.New(settled.Fault)
	case settled.Failure != "":
		return agent.Result{Failure: settled.Failure, Message: settled.Message}, nil
	}
	switch in.Ending {
	case Returned:
		return agent.ReadReply([]byte(in.Reply), g.Limit), nil
	case Raised:
		return agent.Result{Failure: agent.Error, Message: in.Message}, nil
	case Panicked:
		return agent.Result{Failure: agent.Panic, Message: in.Message}, nil
	case TooLong:
		return agent.Result{Failure: agent.OutputLimit, Message: in.Message}, nil
	case Terminated:
		return agent.Result{Failure: agent.Killed, Message: in.Message}, nil
	case TimedOut:
		if settled.Waited > 0 {
			return agent.Result{}, fmt.Errorf("%s; for %s of this time it waited for faults of Fulgurite", in.Message, settled.Waited)
		}
		return r.timedOut(ctx, in)
	}
	return agent.Result{}, fmt.Errorf("%s: %s", in.Ending, in.Message)
}

// timedOut returns the result of an agent that returned nothing in time. If no worker had
// started it, or its workflow's code failed there so that Temporal asked again and again,
// that is a fault. Otherwise the agent hung or its worker was lost; these two
// cases can't be told apart here.
func (r *Runner) timedOut(ctx context.Context, in EndAttemptInput) (agent.Result, error) {
	if r.Workers != nil && in.Workflow != "" {
		stuck, err := r.Workers.Stuck(ctx, in.Workflow)
		if err != nil {
			return agent.Result{}, err
		}
		if stuck != "" {
			return agent.Result{}, fmt.Errorf("no result in time: %s", stuck)
		}
	}
	return agent.Result{Failure: agent.Hang, Message: in.Message}, nil
}

// attended returns an error while no worker polls the queue of an agent.
func (r *Runner) attended(ctx context.Context, a spec.Temporal) error {
	if r.Workers == nil {
		return nil
	}
	polled, err := r.Workers.Polled(ctx, a.Queue, a.Workflow != "")
	if err != nil {
		return err
	}
	if !polled {
		return fmt.Errorf("no worker polls the task queue %q of agent.temporal: start one, and attempts begin by themselves", a.Queue)
	}
	return nil
}

// Failures of agents that appear only when an attempt is graded; package agent has the
// others.
const (
	noReward  agent.Failure = "no_reward"  // the agent had to report its reward and did not
	badReward agent.Failure = "bad_reward" // the agent's last report is no reward
)

// beforeFails is the failure of attempts whose agent was not launched, because the
// command before it failed. It counts as a fault as long as another try may help.
const beforeFails agent.Failure = "before"

// testsFail is the failure of attempts whose tests gave no reward. It counts as a fault,
// too.
const testsFail agent.Failure = "tests"

// RetryTries is how many attempts a rollout has whose agent asks for another one each time.
// After the last of them its task is quarantined. They take two minutes at least, because
// Temporal waits up to half a minute between them.
const RetryTries = 10

// AskedAgain begins the error of an attempt whose agent asked for another one.
const AskedAgain = "the agent asks for another attempt"

// triesOf returns how often a failure that counts as a fault may happen at a rollout until
// its task is at fault. It is 0 if a failure never means that.
func triesOf(failure string) int {
	switch agent.Failure(failure) {
	case beforeFails, testsFail:
		return GraderTries
	case agent.Retry:
		return RetryTries
	}
	return 0
}

// askedAgain returns the fault of an attempt whose agent asked for another one.
func askedAgain(result agent.Result) error {
	return fmt.Errorf("%s: %s", AskedAgain, result.Message)
}

// exhausted reports whether a failure that counts as a fault has happened as often at a
// rollout as it may, this attempt included.
func (r *Runner) exhausted(ctx context.Context, address record.Address, failure string) (bool, error) {
	most := triesOf(failure)
	if most == 0 {
		return false, nil
	}
	all, err := r.Attempts.AttemptProgress(ctx, address.RolloutID)
	if err != nil {
		return false, err
	}
	_, before := splitProgress(all, address.Attempt, failure)
	return len(before)+1 >= most, nil
}

// unclearTries is how often a rollout is tried when its agent fails in a way that may be
// the machine's fault. After that it counts as the agent's failure.
const unclearTries = 5

// classify decides whether a failure is the agent's or the machine's, if it may be
// either. It returns an error to ask for another try. The failure is the agent's if the
// agent hangs where an earlier attempt hung, or if the same failure has happened too
// often.
func (r *Runner) classify(ctx context.Context, address record.Address, result *agent.Result) error {
	progress, err := r.Attempts.AttemptProgress(ctx, address.RolloutID)
	if err != nil {
		return err
	}
	now, before := splitProgress(progress, address.Attempt, string(result.Failure))
	for _, p := range before {
		if result.Failure == agent.Hang && p.Same(now) {
			result.Message += fmt.Sprintf("; attempt %d hung at the same place, after %d calls", p.Attempt, p.Calls)
			return nil
		}
	}
	if len(before)+1 >= unclearTries {
		result.Message += fmt.Sprintf("; so did %d attempts before", len(before))
		return nil
	}
	return fmt.Errorf("it may not be the agent's fault, trying again: %s", describe(*result))
}

// splitProgress returns the progress of an attempt, and that of the rollout's earlier
// attempts that failed in the same way.
func splitProgress(progress []record.Progress, attempt int, failure string) (now record.Progress, before []record.Progress) {
	for _, p := range progress {
		switch {
		case p.Attempt == attempt:
			now = p
		case p.Attempt < attempt && p.Failure == failure:
			before = append(before, p)
		}
	}
	return now, before
}

// failAttempt sets the failure reward of an attempt.
func failAttempt(a *record.Attempt, s spec.Spec, result agent.Result) {
	reward := s.Agent.FailureReward
	a.Outcome, a.Reward, a.Failure, a.Error = record.AgentFailed, &reward, string(result.Failure), describe(result)
}

// describe returns a description of a failure, with the end of the agent's output.
func describe(result agent.Result) string {
	return strings.TrimSpace(fmt.Sprintf("%s: %s\n%s\n%s", result.Failure, result.Message, strings.TrimSpace(result.Stderr), result.Note))
}

// outcome returns the result of a sealed attempt.
func (r *Runner) outcome(ctx context.Context, address record.Address) (RunAgentResult, error) {
	a, err := r.Attempts.Attempt(ctx, address)
	if err != nil {
		return RunAgentResult{}, fmt.Errorf("read attempt %s: %w", address, err)
	}
	out := RunAgentResult{Attempt: a.Address.Attempt, Outcome: a.Outcome, Reward: a.Reward, Calls: a.Calls, Tokens: a.Tokens}
	if a.Outcome == record.AgentFailed && a.Calls == 0 {
		out.TaskFault = truncate.Ellipsis("agent failed before its first model call: "+a.Error, failureBytes)
	}
	return out, nil
}

// failureBytes bounds the part of an error that goes through Temporal; the store has all
// of it.
const failureBytes = 1 << 10

// refusedRewards returns the refusals of rewards of an attempt.
func (r *Runner) refusedRewards(ctx context.Context, address record.Address) ([]record.Refusal, error) {
	all, err := r.Attempts.Refusals(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("read refusals: %w", err)
	}
	return slices.DeleteFunc(all, func(f record.Refusal) bool { return !f.OfReward() }), nil
}

// checkSampled returns an error that ends the run if a sampler refused the settings of a
// call of the attempt: no try can help, and the agent is not to blame.
func (r *Runner) checkSampled(ctx context.Context, address record.Address) error {
	all, err := r.Attempts.Refusals(ctx, address)
	if err != nil {
		return fmt.Errorf("read refusals: %w", err)
	}
	for _, one := range all {
		if one.Code == protocol.CodeUnsampled {
			return invalid(errors.New(one.Message))
		}
	}
	return nil
}

// addRefusals adds the calls and rewards that the gateway refused to the error of a failed
// attempt. They are often the reason, and the agent may not have reported it. They are added to
// the first line, because some places show only that line.
func (r *Runner) addRefusals(ctx context.Context, a *record.Attempt) error {
	if a.Outcome != record.AgentFailed {
		return nil
	}
	refusals, err := r.Attempts.Refusals(ctx, a.Address)
	if err != nil {
		return fmt.Errorf("read refusals: %w", err)
	}
	if len(refusals) == 0 {
		return nil
	}
	var calls, rewards []string
	for _, one := range refusals {
		if one.OfReward() {
			rewards = append(rewards, one.String())
		} else {
			calls = append(calls, one.String())
		}
	}
	first, rest, _ := strings.Cut(a.Error, "\n")
	if len(calls) > 0 {
		first += "; model calls were refused: " + strings.Join(calls, ", ")
	}
	if len(rewards) > 0 {
		first += "; rewards were refused: " + strings.Join(rewards, ", ")
	}
	a.Error = strings.TrimSpace(first + "\n" + rest)
	return nil
}
