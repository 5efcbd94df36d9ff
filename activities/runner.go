package activities

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
)

// Runner runs the activities of the rollout queues: agents and graders.
type Runner struct {
	Runs      Runs
	Attempts  Attempts
	Blobs     Blobs
	Launchers Launchers
	Forwarder *agent.Forwarder

	library library
}

// RunAgent makes one attempt at a rollout: it allocates the attempt, runs the
// agent behind the worker's forwarder, grades what it returns and seals the
// attempt. Faults of the infrastructure are errors, tried again as a new
// attempt; failures of the agent are results with the spec's failure reward.
func (r *Runner) RunAgent(ctx context.Context, in RunAgentInput) (_ RunAgentResult, err error) {
	defer settle(&err)
	v, err := r.library.open(ctx, in.Rollout.Run, r.Runs, r.Blobs)
	if err != nil {
		return RunAgentResult{}, err
	}
	task, err := v.task(in.Rollout.Kind, in.Index)
	if err != nil {
		return RunAgentResult{}, err
	}
	launcher, err := r.Launchers.Launcher(v.spec)
	if err != nil {
		return RunAgentResult{}, invalid(fmt.Errorf("agent of run %s: %w", in.Rollout.Run, err))
	}
	key := newKey()
	address, err := r.Attempts.BeginAttempt(ctx, in.Rollout, task.ID, terms(v.spec, in), hashKey(key))
	if err != nil {
		return RunAgentResult{}, fmt.Errorf("begin an attempt at %s: %w", in.Rollout, err)
	}
	a := trace.Attempt{Address: address, TaskID: task.ID}
	result, err := r.launch(ctx, launcher, v.spec, task, address, key)
	if err != nil {
		a.Outcome, a.Error = trace.InfraFault, err.Error()
		// The worker may be stopping; the record is worth a moment more.
		seal, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return RunAgentResult{}, errors.Join(fmt.Errorf("attempt %s: %w", address, err), r.Attempts.SealAttempt(seal, a))
	}
	if err := r.judge(ctx, v.spec, task, result, &a); err != nil {
		return RunAgentResult{}, fmt.Errorf("grade attempt %s: %w", address, err)
	}
	if err := r.Attempts.SealAttempt(ctx, a); err != nil {
		return RunAgentResult{}, fmt.Errorf("seal attempt %s: %w", address, err)
	}
	sealed, err := r.Attempts.Attempt(ctx, address)
	if err != nil {
		return RunAgentResult{}, fmt.Errorf("read attempt %s: %w", address, err)
	}
	return RunAgentResult{Attempt: address.Attempt, Outcome: a.Outcome, Reward: a.Reward, Calls: sealed.Calls, Tokens: sealed.Tokens}, nil
}

// launch runs the agent behind the forwarder and reports that it lives.
func (r *Runner) launch(ctx context.Context, l agent.Launcher, s spec.Spec, task tasks.Task, address trace.Address, key string) (agent.Result, error) {
	session, err := r.Forwarder.Open(ctx, address)
	if err != nil {
		return agent.Result{}, err
	}
	defer session.Close()
	result, err := beating(ctx, func() any { return session.Progress() }, func() (agent.Result, error) {
		return l.Launch(ctx, agent.Job{
			Address: address, Task: agent.Task{ID: task.ID, Input: task.Input, Metadata: task.Metadata},
			BaseURL: session.BaseURL(), Key: key, Directory: s.Agent.Directory, Environment: s.Agent.Environment,
			Limits: agent.Limits{
				Time:        time.Duration(s.Agent.Limits.Seconds * float64(time.Second)),
				OutputBytes: int64(s.Agent.Limits.OutputBytes),
			},
			Waited: session.Waited,
		})
	})
	if err == nil {
		err = session.Fault()
	}
	return result, err
}

// terms are the conditions under which the attempt's calls are answered.
func terms(s spec.Spec, in RunAgentInput) trace.Terms {
	t := trace.Terms{
		Policy: in.Policy, Version: in.Version, RunSeed: s.Seed, Codec: s.Model.Codec, Temperature: *s.Sampling.Temperature,
		MaxTokens: s.Sampling.MaxTokens, MaxCalls: s.Agent.Limits.Calls, TokenBudget: s.Agent.Limits.Tokens,
		Graded: s.Grader.Type != "agent",
	}
	if in.Greedy {
		t.Temperature = 0
	}
	return t
}

// newKey is a random key for one attempt; only its hash is stored.
func newKey() string { return "sk-fulgurite-" + rand.Text() }

func hashKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}
