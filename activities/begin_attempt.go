package activities

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/agent"
)

// lendFor is how long an attempt may take beyond the agent's own limit before the
// forwarder closes its session. Most of that time is waiting for a worker.
const lendFor = 24 * time.Hour

// BeginAttemptInput asks for another attempt at a rollout.
type BeginAttemptInput struct {
	RunAgentInput
	// Fault says why the attempt before does not count; empty if there was none. The next
	// one begins after Wait. Faults counts the attempts that did not count.
	Fault  string        `json:"fault,omitempty"`
	Faults int           `json:"faults,omitempty"`
	Wait   time.Duration `json:"wait,omitempty"`
}

// BeginAttemptResult describes an attempt that has begun, for an agent that is a user's
// workflow or activity.
type BeginAttemptResult struct {
	Attempt int              `json:"attempt,omitempty"`
	Brief   agent.Invocation `json:"brief,omitzero"` // the agent's argument
	// Ended is the outcome of the rollout if it had already ended. No attempt has begun
	// then.
	Ended *RunAgentResult `json:"ended,omitempty"`
}

// BeginAttempt begins an attempt for an agent that RolloutWorkflow starts itself, and
// opens a session for it at this worker's forwarder. EndAttempt closes the session, on
// any worker. No attempt begins while no worker polls the agent's queue.
//
// After a fault, BeginAttempt fails with that fault, as often as there were faults, and
// Temporal's wait before the last retry is the wait before the next attempt. So Temporal,
// and all who ask it, show the fault in the same way as that of an agent in this process.
func (r *Runner) BeginAttempt(ctx context.Context, in BeginAttemptInput) (_ BeginAttemptResult, err error) {
	if err := faultBefore(in, int(activity.GetInfo(ctx).Attempt)); err != nil {
		return BeginAttemptResult{}, err
	}
	defer temporalError(&err)
	v, task, err := r.task(ctx, in.Rollout, in.Index)
	if err != nil {
		return BeginAttemptResult{}, err
	}
	if v.spec.Agent.Temporal == nil {
		return BeginAttemptResult{}, invalid(fmt.Errorf("begin an attempt at %s: the spec of its run has no agent.temporal", in.Rollout))
	}
	if err := r.attended(ctx, *v.spec.Agent.Temporal); err != nil {
		return BeginAttemptResult{}, err
	}
	key := newKey()
	address, ended, err := r.begin(ctx, in.RunAgentInput, task.ID, terms(v.spec, in.RunAgentInput), hashKey(key))
	if err != nil {
		return BeginAttemptResult{}, fmt.Errorf("begin an attempt at %s: %w", in.Rollout, err)
	}
	if ended {
		out, err := r.outcome(ctx, address)
		out.Title = titleOf(task, address)
		return BeginAttemptResult{Ended: &out}, err
	}
	session, err := r.Forwarder.OpenExternal(address, key, limitsOf(v.spec).Time+lendFor)
	if err != nil {
		return BeginAttemptResult{}, err
	}
	job := agent.Job{Address: address, Task: agentTask(task), BaseURL: session.BaseURL(), Key: key}
	return BeginAttemptResult{Attempt: address.Attempt, Brief: job.Invocation()}, nil
}

// shownFaults is the most tries that show a fault. `fulgurite try` gives up after as many.
const shownFaults = 5

// faultBefore returns the fault of the attempt before, with the time to wait, until it has
// been returned often enough.
func faultBefore(in BeginAttemptInput, try int) error {
	last := min(in.Faults, shownFaults)
	if try > last {
		return nil
	}
	wait := in.Wait
	if try < last {
		wait = time.Millisecond
	}
	return temporal.NewApplicationErrorWithOptions(fmt.Sprintf("the attempt before does not count, trying again: %s", in.Fault), "fault",
		temporal.ApplicationErrorOptions{NextRetryDelay: wait})
}
