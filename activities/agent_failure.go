package activities

import (
	"context"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/internal/truncate"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

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
func (r *Runner) exhausted(ctx context.Context, address trace.Address, failure string) (bool, error) {
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
func (r *Runner) classify(ctx context.Context, address trace.Address, result *agent.Result) error {
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
func splitProgress(progress []trace.Progress, attempt int, failure string) (now trace.Progress, before []trace.Progress) {
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
func failAttempt(a *trace.Attempt, s spec.Spec, result agent.Result) {
	reward := s.Agent.FailureReward
	a.Outcome, a.Reward, a.Failure, a.Error = trace.AgentFailed, &reward, string(result.Failure), describe(result)
}

// describe returns a description of a failure, with the end of the agent's output.
func describe(result agent.Result) string {
	return strings.TrimSpace(fmt.Sprintf("%s: %s\n%s\n%s", result.Failure, result.Message, strings.TrimSpace(result.Stderr), result.Note))
}

// outcome returns the result of a sealed attempt.
func (r *Runner) outcome(ctx context.Context, address trace.Address) (RunAgentResult, error) {
	a, err := r.Attempts.Attempt(ctx, address)
	if err != nil {
		return RunAgentResult{}, fmt.Errorf("read attempt %s: %w", address, err)
	}
	out := RunAgentResult{Attempt: a.Address.Attempt, Outcome: a.Outcome, Reward: a.Reward, Calls: a.Calls, Tokens: a.Tokens}
	if a.Outcome == trace.AgentFailed && a.Calls == 0 {
		out.TaskFault = truncate.Ellipsis("agent failed before its first model call: "+a.Error, failureBytes)
	}
	return out, nil
}

// failureBytes bounds the part of an error that goes through Temporal; the store has all
// of it.
const failureBytes = 1 << 10
