package activities

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/internal/truncate"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/grading"
)

// Runner runs the activities of the rollout queues: agents and graders.
type Runner struct {
	Runs      Runs
	Attempts  Attempts
	Blobs     Blobs
	Launchers Launchers
	Forwarder Forwarder
	// Workers has information about users' workers. If it is nil, that information is not
	// used.
	Workers Workers
	// TLS says which certificates the forwarders of other workers may have; nil is what the
	// system accepts.
	TLS *tls.Config

	runs    runCache
	graders grading.Graders
	// ending replaces endingTime if it is not 0.
	ending time.Duration
}

// Close ends the databases and programs that grade. No activity may be running. It
// returns no error, because otherwise it would be registered as an activity itself.
func (r *Runner) Close() { _ = r.graders.Close() }

// endingTime is how long a worker may take, beyond an agent's own limit, to end the agent
// and to find out whether its gateway was available. A worker that takes longer counts as
// hanging.
const endingTime = 30 * time.Second

// RunAgent makes one attempt at a rollout: it allocates the attempt, runs the agent with
// the worker's forwarder as its model server, grades its result and seals the attempt.
// Faults of the infrastructure are errors, and Temporal's retry makes a new attempt. The
// same holds for failures that may be the machine's, until they repeat, and for attempts
// of which the agent says that they have no valid reward. Other failures of
// the agent are results with the spec's failure reward. If a command before the attempt
// fails each time, that is a fault of the task. A rollout that has ended is not attempted
// again: RunAgent returns its recorded outcome.
func (r *Runner) RunAgent(ctx context.Context, in RunAgentInput) (_ RunAgentResult, err error) {
	defer temporalError(&err)
	o, err := beating(ctx, recordBeat(), func(ctx context.Context) (begunAttempt, error) { return r.startAttempt(ctx, in) })
	if err != nil {
		return RunAgentResult{}, err
	}
	if o.ended != nil {
		return *o.ended, nil
	}
	result, partlyRead, err := r.launch(ctx, o)
	return beating(ctx, recordBeat(), func(ctx context.Context) (RunAgentResult, error) {
		return r.finishAttempt(ctx, o, result, partlyRead, err)
	})
}

// recordStall is how long it may take to begin or to record an attempt before the worker
// counts as hanging. A slow store needs minutes.
const recordStall = 5 * time.Minute

// recordBeat returns the heartbeats of an activity that waits for the store. Without
// them, if the store is slower than the heartbeat timeout, Temporal would start a later
// attempt on another worker while this one is still running.
func recordBeat() beat {
	return beat{progress: func() any { return nil }, stall: recordStall}
}

// begunAttempt is an attempt that has begun, or the outcome of the rollout if it has
// ended.
type begunAttempt struct {
	ended    *RunAgentResult
	run      *cachedRun
	task     tasks.Task
	launcher agent.Launcher
	address  record.Address
	key      string
}

// startAttempt begins an attempt, unless the rollout has ended.
func (r *Runner) startAttempt(ctx context.Context, in RunAgentInput) (begunAttempt, error) {
	v, task, err := r.task(ctx, in.Rollout, in.Index)
	if err != nil {
		return begunAttempt{}, err
	}
	launcher, err := r.Launchers.Launcher(v.spec)
	if err != nil {
		return begunAttempt{}, invalid(fmt.Errorf("agent of run %s: %w", in.Rollout.Run, err))
	}
	key := newKey()
	if ctx.Err() != nil { // reading took so long that another execution has begun
		return begunAttempt{}, context.Cause(ctx)
	}
	address, ended, err := r.begin(ctx, in, task.ID, terms(v.spec, in), hashKey(key))
	if err != nil {
		return begunAttempt{}, fmt.Errorf("begin an attempt at %s: %w", in.Rollout, err)
	}
	o := begunAttempt{run: v, task: task, launcher: launcher, address: address, key: key}
	if ended {
		out, err := r.outcome(ctx, address)
		out.Title = titleOf(task, address)
		o.ended = &out
		return o, err
	}
	return o, nil
}

// task returns the run of a rollout and the task at index in the rollout's split.
func (r *Runner) task(ctx context.Context, id record.RolloutID, index int) (*cachedRun, tasks.Task, error) {
	run, err := r.runs.get(ctx, id.Run, r.Runs, r.Blobs)
	if err != nil {
		return nil, tasks.Task{}, err
	}
	task, err := run.task(id.Kind, index)
	return run, task, err
}

// finishAttempt records the outcome of an attempt whose agent returned a result or an
// error, and closed the streams of some requests.
func (r *Runner) finishAttempt(ctx context.Context, o begunAttempt, result agent.Result, partlyRead []string, err error) (RunAgentResult, error) {
	a := record.Attempt{Address: o.address, TaskID: o.task.ID, Output: result.Output, PartlyRead: partlyRead, Returned: time.Now()}
	if err == nil {
		err = r.checkSampled(ctx, o.address)
	}
	if err == nil && result.Failure == agent.Retry {
		a.Failure = string(agent.Retry)
		return r.sealFault(ctx, a, fmt.Errorf("attempt %s: %w", o.address, askedAgain(result)))
	}
	if err == nil && result.Failure.Unclear() {
		err = r.classify(ctx, o.address, &result)
		a.Failure = string(result.Failure)
	}
	if err != nil {
		return r.sealFault(ctx, a, fmt.Errorf("attempt %s: %w", o.address, err))
	}
	if err := r.fillOutcome(ctx, o.run.spec, o.task, result, &a); err != nil {
		return RunAgentResult{}, fmt.Errorf("grade attempt %s: %w", o.address, err)
	}
	if err := r.Attempts.SealAttempt(ctx, a); err != nil {
		return RunAgentResult{}, fmt.Errorf("seal attempt %s: %w", o.address, err)
	}
	out, err := r.outcome(ctx, o.address)
	out.Title = titleOf(o.task, o.address)
	return out, err
}

// titleBytes bounds the part of a task that Temporal shows.
const titleBytes = 120

// titleOf returns the beginning of a task in printable characters, for the first sample
// of a group: Temporal shows it beside the group's workflow.
func titleOf(t tasks.Task, address record.Address) string {
	if address.Sample > 0 {
		return ""
	}
	plain := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == '`' || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, fmt.Sprintf("%.40s: %.1000s", t.ID, t.Input))
	return truncate.Ellipsis(strings.Join(strings.Fields(plain), " "), titleBytes)
}

// sealFault seals an attempt that met a fault, and returns that fault so that Temporal
// tries again. But when the command before it, or the tests after it, fail each time, or
// the agent asks for another attempt each time, the task is at fault.
func (r *Runner) sealFault(ctx context.Context, a record.Attempt, fault error) (RunAgentResult, error) {
	// If this worker lacks the command, or the command ended together with the worker,
	// that says nothing about the task.
	if !errors.Is(fault, agent.ErrNotStarted) && ctx.Err() == nil {
		switch {
		case errors.Is(fault, agent.ErrBefore):
			a.Failure = string(beforeFails)
		case errors.Is(fault, agent.ErrTests):
			a.Failure = string(testsFail)
		}
	}
	a.Outcome, a.Error = record.InfraFault, fault.Error()
	// The worker may be stopping. This waits a few more seconds for the record.
	seal, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := r.Attempts.SealAttempt(seal, a)
	if err != nil {
		return RunAgentResult{}, errors.Join(fault, err)
	}
	if exhausted, err := r.exhausted(ctx, a.Address, a.Failure); err != nil || !exhausted {
		return RunAgentResult{}, errors.Join(fault, err)
	}
	return RunAgentResult{Attempt: a.Attempt, Outcome: a.Outcome, TaskFault: truncate.Ellipsis(a.Error, failureBytes)}, nil
}

// begin begins an attempt, unless the rollout has already ended. It may have: an earlier
// worker could not report the end to Temporal, or this worker was interrupted and starts
// late. Trials are attempted as often as they are requested.
func (r *Runner) begin(ctx context.Context, in RunAgentInput, taskID string, terms record.Terms, keyHash string) (record.Address, bool, error) {
	if in.Rollout.Kind != record.Try {
		return r.Attempts.BeginUnlessEnded(ctx, in.Rollout, taskID, terms, keyHash)
	}
	a, err := r.Attempts.BeginAttempt(ctx, in.Rollout, taskID, terms, keyHash)
	return a, false, err
}

// launch runs the agent with a session of the forwarder, and sends heartbeats. It also
// returns which requests the agent read in part.
func (r *Runner) launch(ctx context.Context, o begunAttempt) (_ agent.Result, partlyRead []string, _ error) {
	v := o.run
	session, err := r.Forwarder.Open(ctx, o.address, o.key)
	if err != nil {
		return agent.Result{}, nil, err
	}
	defer session.Close()
	environment, err := agent.Variables(v.spec.Agent.Environment, v.spec.Agent.SecretEnvironment)
	if err != nil {
		return agent.Result{}, nil, err
	}
	baseURL := session.BaseURL()
	if v.spec.Agent.Service != nil {
		baseURL = session.ServiceURL()
	}
	limits := limitsOf(v.spec)
	var signs atomic.Uint64
	b := beat{progress: func() any { return session.Progress() + signs.Load() }}
	if limits.Time > 0 {
		b.stall = limits.Time + cmp.Or(r.ending, endingTime)
		if len(v.spec.Agent.Before)+len(v.spec.Agent.After) > 0 {
			b.stall += 2 * agent.HookLimit
		}
		if v.spec.Grader.Type == spec.GraderHarbor {
			b.stall += workspaceTime(o.task)
		}
	}
	result, err := beating(ctx, b, func(ctx context.Context) (agent.Result, error) {
		// The end of the activity or of the session ends the agent.
		attempt, end := context.WithCancelCause(session.Context())
		defer end(context.Canceled)
		defer context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })()
		result, err := o.launcher.Launch(attempt, agent.Job{
			Address: o.address, Execution: v.run.ExecutionID,
			Task:    agentTask(o.task),
			BaseURL: baseURL, Key: o.key, Directory: v.spec.Agent.Directory, Environment: environment,
			Limits: limits, Progress: func() { signs.Add(1) }, Waited: session.Waited, Idle: session.Idle,
		})
		session.Close() // the session finds no more faults after this
		return result, err
	})
	if err == nil {
		err = session.Fault()
	}
	return result, session.PartlyRead(), err
}

// workspaceTime returns how long it may take to make a task's workspace and to run its
// tests.
func workspaceTime(t tasks.Task) time.Duration {
	one, err := tasks.HarborTask(t.ID, t.Metadata)
	if err != nil {
		return 0 // the launcher reports it
	}
	return one.Longest()
}

// agentTask returns the part of a task that the agent sees.
func agentTask(t tasks.Task) agent.Task {
	return agent.Task{ID: t.ID, Input: t.Input, Metadata: t.Metadata}
}

func limitsOf(s spec.Spec) agent.Limits {
	l := s.Agent.Limits
	return agent.Limits{
		Time: seconds(l.Seconds), Idle: seconds(l.IdleSeconds),
		OutputBytes: int64(l.OutputBytes), MemoryBytes: int64(l.MemoryBytes), Reward: s.Grader.Limit,
		Processes: l.Processes, CPU: seconds(l.CPUSeconds), FileBytes: int64(l.FileBytes),
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// terms returns the terms under which the gateway answers the attempt's calls.
func terms(s spec.Spec, in RunAgentInput) record.Terms {
	t := record.Terms{
		Policy: in.Policy, Version: in.Version, RunSeed: s.Seed, Codec: s.Model.Codec, Temperature: *s.Sampling.Temperature,
		MaxTokens: s.Sampling.MaxTokens, MaxCalls: s.Agent.Limits.Calls, TokenBudget: s.Agent.Limits.Tokens,
		Graded: s.Grader.Type != "agent", RewardLimit: s.Grader.Limit, GradedRewards: s.Grader.Rewards, Ignore: s.Replay.Ignore, Prompts: cmp.Or(in.Prompts, s.PromptsDigest()),
	}
	if s.Sampling.History == record.HistoryTemplate {
		t.History = s.Sampling.History
	}
	if in.Greedy {
		t.Temperature = 0
	}
	for _, name := range s.PolicyNames() {
		rule := record.PolicyRule{Policy: name}
		for _, m := range s.Policies[name].Match {
			rule.Match = append(rule.Match, record.PolicyMatch(m))
		}
		if v, ok := in.Versions[name]; ok {
			rule.Version = &v
		}
		t.Policies = append(t.Policies, rule)
	}
	return t
}

// newKey returns a random key for one attempt; only its hash is stored.
func newKey() string { return "sk-fulgurite-" + rand.Text() }

func hashKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

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

// AttemptTerms returns the terms under which RunAgent begins an attempt of a run with
// version v. Code outside of RunAgent that runs the run's agent uses them to get the same
// answers to its calls.
func AttemptTerms(s spec.Spec, v model.VersionID) record.Terms {
	return terms(s, RunAgentInput{Policy: v.Policy, Version: v.Number})
}

// AttemptLimits returns the limits under which RunAgent launches the agent of a run.
func AttemptLimits(s spec.Spec) agent.Limits { return limitsOf(s) }
