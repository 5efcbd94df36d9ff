package agent

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/agent/process"
	"github.com/fulgurite/fulgurite/record"
)

// DefaultModel is the model name that an agent gets when its job has none. Gateways
// accept any name.
const DefaultModel = "fulgurite"

// Task is the part of a task that an agent sees: everything but the answer. Its JSON form
// is the agent's standard input.
type Task struct {
	ID       string         `json:"id"`
	Input    string         `json:"input"`
	Metadata map[string]any `json:"metadata,omitempty"`
}

// Limits end an agent that goes beyond them, which counts as its own failure.
// Zero is no limit.
type Limits struct {
	// Time is wall clock without what Job.Waited reports.
	Time time.Duration
	// Idle is how long an agent may show no sign of life: no model call under way and,
	// from a command, no output.
	Idle time.Duration
	// OutputBytes counts standard output and standard error of a command together.
	OutputBytes int64
	// MemoryBytes is resident memory of a command and all its descendants. It is measured
	// ten times a second, and only on Linux.
	MemoryBytes int64
	// Processes, CPU and FileBytes hold for isolated commands, as in sandbox.Limits.
	Processes int
	CPU       time.Duration
	FileBytes int64
	// Reward is the largest magnitude of a reward that a function may report. The gateway
	// bounds the rewards that commands post.
	Reward float64
}

// Job is one attempt to launch.
type Job struct {
	Address record.Address
	// Execution distinguishes runs of the same name. If two attempts at a rollout belong
	// to the same execution, the later one may end the earlier.
	Execution string
	Task      Task
	// BaseURL is where the agent's model calls go, ending in "/v1". The URLs for rewards
	// and events are next to it. Key authenticates the attempt there.
	BaseURL string
	Key     string
	// Model is the name the agent asks for; DefaultModel when empty.
	Model string
	// Directory is a command's working directory. When empty it is the
	// attempt's own home, which is removed afterwards.
	Directory string
	// Wrap are words to put before a command: a program that runs its last arguments as a
	// command in another place.
	Wrap []string
	// Home is the attempt's own directory, if there is one before the launch: with hooks
	// or a workspace. A command gets one in any case.
	Home string
	home *process.Home
	// Environment is added to the environment of a command, and takes precedence.
	Environment map[string]string
	Limits      Limits
	// Progress, if not nil, is called when the agent shows a sign of life other
	// than a model call. It must be quick and safe for concurrent use.
	Progress func()
	// Waited, if not nil, is the time the agent has so far been held up by faults
	// of ours; it does not count against Limits.Time.
	Waited func() time.Duration
	// Idle, if not nil, is how long the agent has had no model call under way.
	Idle func() time.Duration
}

// root returns the URL of the attempt's own part of the gateway.
func (j Job) root() string { return strings.TrimSuffix(j.BaseURL, "/v1") }

// rewardURL and eventURL return the addresses to which an agent posts rewards and events.
func (j Job) rewardURL() string { return j.root() + "/rewards" }
func (j Job) eventURL() string  { return j.root() + "/events" }

// spansURL returns the base URL under which spans are accepted, at /v1/traces.
func (j Job) spansURL() string { return j.root() + "/otlp" }

func (j Job) model() string {
	if j.Model == "" {
		return DefaultModel
	}
	return j.Model
}

func (j Job) progressed() {
	if j.Progress != nil {
		j.Progress()
	}
}

func (j Job) waited() time.Duration {
	if j.Waited == nil {
		return 0
	}
	return j.Waited()
}

func (j Job) idle() time.Duration {
	if j.Idle == nil {
		return math.MaxInt64 // model calls are not known
	}
	return j.Idle()
}

func (j Job) infrastructure(err error) error {
	return fmt.Errorf("run agent %s: %w", j.Address, err)
}

// Invocation describes an attempt to an external agent. It is the body of the request to
// a service, or the argument of a workflow or an activity.
type Invocation struct {
	Task
	// Rollout is the same in each attempt.
	Rollout string `json:"rollout"`
	// BaseURL takes model calls, and ends in "/v1". APIKey belongs to the attempt.
	BaseURL string `json:"base_url"`
	APIKey  string `json:"api_key"`
	Model   string `json:"model"`
	// RewardURL takes POSTs of {"name", "value"}, EventURL of {"name", "fields"}.
	RewardURL string `json:"reward_url"`
	EventURL  string `json:"event_url"`
	// SpansURL is an OTLP endpoint, to which exporters add "/v1/traces".
	SpansURL string `json:"otlp_url"`
}

// Invocation describes the job to an external agent.
func (j Job) Invocation() Invocation {
	return Invocation{
		Task: j.Task, Rollout: j.Address.RolloutID.String(),
		BaseURL: j.BaseURL, APIKey: j.Key, Model: j.model(),
		RewardURL: j.rewardURL(), EventURL: j.eventURL(), SpansURL: j.spansURL(),
	}
}

// Launcher runs one attempt of an agent to its end.
type Launcher interface {
	// Launch returns the agent's result. An agent that fails by itself is a Result with a
	// Failure and a nil error. An error means that the agent could not be started or was
	// interrupted (no process, a lost shim, ctx ended), and that the attempt says nothing
	// about the agent.
	//
	// When Launch returns, nothing of the agent runs any more, except Go functions that
	// ignore their context (see Func) and services, whose connection is closed.
	Launch(ctx context.Context, job Job) (Result, error)
}

// recheck is the shortest wait between two looks at a clock that may stand still.
const recheck = 20 * time.Millisecond

// LimitError is the cause of a context that ends because the agent went beyond a limit,
// which is its own failure and no fault.
type LimitError struct {
	Failure Failure
	Message string
}

func (e *LimitError) Error() string { return string(e.Failure) + ": " + e.Message }

// limited derives a context that ends with a *LimitError once the agent has used up the
// job's time, or was idle for too long. A plain deadline would not do: time during which
// the agent waited because of our faults does not count. quiet returns how long the
// launcher has seen no sign of life. The returned function must be called.
func limited(ctx context.Context, job Job, quiet func() time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watches sync.WaitGroup
	watch := func(limit time.Duration, used func() time.Duration, over *LimitError) {
		if limit <= 0 {
			return
		}
		watches.Go(func() {
			if outlasts(ctx, limit, used) {
				cancel(over)
			}
		})
	}
	began := time.Now()
	watch(job.Limits.Time, func() time.Duration { return time.Since(began) - job.waited() },
		&LimitError{Timeout, fmt.Sprintf("still running after %s", job.Limits.Time)})
	watch(job.Limits.Idle, func() time.Duration { return min(quiet(), job.idle()) },
		&LimitError{Hang, fmt.Sprintf("no model call and no output for %s", job.Limits.Idle)})
	return ctx, func() {
		cancel(context.Canceled)
		watches.Wait()
	}
}

// outlasts waits until more than the limit is used. It returns false if ctx ends first.
func outlasts(ctx context.Context, limit time.Duration, used func() time.Duration) bool {
	for left := limit; left > 0; left = limit - used() {
		timer := time.NewTimer(max(left, recheck))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
	return true
}
