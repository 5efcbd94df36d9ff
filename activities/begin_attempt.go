package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

// largestTask limits the size, in bytes of JSON, of a task that goes to an agent through
// Temporal. Temporal accepts 2 MiB for a whole message.
const largestTask = 1 << 20

// lendFor is how long an attempt may take beyond the agent's own limit before the
// forwarder closes its session. Most of that time is waiting for a worker.
const lendFor = 24 * time.Hour

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
func (r *Runner) BeginAttempt(ctx context.Context, in RunAgentInput) (_ BeginAttemptResult, err error) {
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
	address, ended, err := r.begin(ctx, in, task.ID, terms(v.spec, in), hashKey(key))
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

// checkTaskSizes reports a task that is too large for an agent that is a workflow or an
// activity.
func checkTaskSizes(a spec.Agent, list []tasks.Task) error {
	if a.Temporal == nil {
		return nil
	}
	for _, t := range list {
		data, err := json.Marshal(agentTask(t))
		if err != nil {
			return fmt.Errorf("task %s: %w", t.ID, err)
		}
		if len(data) > largestTask {
			return fmt.Errorf("task %s has %d bytes: agent.temporal takes at most %d through Temporal; give the agent a path or an address in its place", t.ID, len(data), largestTask)
		}
	}
	return nil
}
