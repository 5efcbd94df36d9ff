package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/agent/process"
	"github.com/fulgurite/fulgurite/internal/truncate"
	"github.com/fulgurite/fulgurite/record"
)

// Func is an agent written as a Go function that runs inside the worker. It returns the
// result to grade, or an error that wraps ErrRetry to ask for another attempt. A panic of its own goroutine becomes a Failure; a panic in a goroutine
// that it starts ends the worker, as in any Go program.
//
// A function must return soon after its context ends. Launch waits two seconds for it,
// and then leaves it running.
type Func func(ctx context.Context, task Task, env Env) (string, error)

// Env is a function's access to its attempt.
type Env struct {
	BaseURL   string // for model calls, ends in "/v1"
	Key       string
	Model     string
	RewardURL string // takes POSTs of {"name", "value"}
	EventURL  string // takes POSTs of {"name", "fields"}
	SpansURL  string // takes OTLP over HTTP at /v1/traces
	Rollout   record.RolloutID
	// Home is the attempt's own directory if hooks run around it, else empty.
	Home string
	// Variables has the job's Environment.
	Variables map[string]string

	report *rewardReport
}

// Reward reports the attempt's reward; the last report counts. It must be a finite number
// within the limit of the job's rewards. A refused report counts, too: if the agent
// decides on its reward and its last report was refused, that is a failure.
func (e Env) Reward(value float64) error {
	if e.report == nil {
		return errors.New("report reward: not in an attempt")
	}
	return e.report.set(value)
}

// rewardReport is the last reward that a function reported.
type rewardReport struct {
	limit float64 // 0 is no limit

	mu      sync.Mutex
	value   *float64
	refusal error
}

func (r *rewardReport) set(v float64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.value, r.refusal = &v, nil
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		r.refusal = fmt.Errorf("report reward: %v is not a finite number", v)
	case r.limit > 0 && math.Abs(v) > r.limit:
		r.refusal = fmt.Errorf("report reward: %v is beyond the limit of %v", v, r.limit)
	}
	if r.refusal != nil {
		r.value = nil
	}
	return r.refusal
}

func (r *rewardReport) last() (value *float64, refusal string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refusal != nil {
		refusal = r.refusal.Error()
	}
	return r.value, refusal
}

// callResult is how a call of a Func ended.
type callResult struct {
	text     string
	err      error
	panicked string // value and stack
}

// Launch calls the function in a new goroutine.
func (f Func) Launch(ctx context.Context, job Job) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, job.infrastructure(context.Cause(ctx))
	}
	env := Env{
		BaseURL: job.BaseURL, Key: job.Key, Model: job.model(),
		RewardURL: job.rewardURL(), EventURL: job.eventURL(), SpansURL: job.spansURL(), Home: job.Home,
		Rollout: job.Address.RolloutID, Variables: maps.Clone(job.Environment),
		report: &rewardReport{limit: job.Limits.Reward},
	}
	began := time.Now()
	bounded, stop := limited(ctx, job, func() time.Duration { return time.Since(began) })
	defer stop()
	results := make(chan callResult, 1)
	go f.call(bounded, job.Task, env, results)
	job.progressed()

	var r callResult
	select {
	case r = <-results:
	case <-bounded.Done():
		awaitEnd(results)
	}
	var over *LimitError
	switch {
	case errors.As(context.Cause(bounded), &over):
		return Result{Failure: over.Failure, Message: over.Message}, nil
	case ctx.Err() != nil:
		return Result{}, job.infrastructure(context.Cause(ctx))
	}
	return r.result(env.report), nil
}

// call always sends once, also when the function panics or ends its goroutine.
func (f Func) call(ctx context.Context, task Task, env Env, results chan<- callResult) {
	r := callResult{panicked: "the function ended its goroutine"}
	defer func() {
		if v := recover(); v != nil {
			r.panicked = fmt.Sprintf("%v\n%s", v, debug.Stack())
		}
		results <- r
	}()
	text, err := f(ctx, task, env)
	r = callResult{text: text, err: err}
}

func awaitEnd(results <-chan callResult) {
	timer := time.NewTimer(process.Grace)
	defer timer.Stop()
	select {
	case <-results:
	case <-timer.C:
	}
}

func (r callResult) result(reported *rewardReport) Result {
	switch {
	case r.panicked != "":
		return Result{Failure: Panic, Message: truncate.Head(r.panicked, messageBytes)}
	case errors.Is(r.err, ErrRetry):
		return Result{Failure: Retry, Message: truncate.Head(r.err.Error(), messageBytes)}
	case r.err != nil:
		return Result{Failure: Error, Message: truncate.Head(r.err.Error(), messageBytes)}
	default:
		reward, refusal := reported.last()
		result := resultOf(r.text, len(r.text))
		if !result.Failed() {
			result.Reward, result.RewardError = reward, refusal
		}
		return result
	}
}

// ErrUnknownFunc is wrapped when a Registry has no function of a name.
var ErrUnknownFunc = errors.New("no such agent function")

// Registry holds the functions of a worker by the name that a spec gives.
type Registry map[string]Func

// Launcher returns the function called name.
func (r Registry) Launcher(name string) (Launcher, error) {
	f, ok := r[name]
	if !ok {
		known := strings.Join(slices.Sorted(maps.Keys(r)), ", ")
		return nil, fmt.Errorf("%w: %q; this worker has: %s", ErrUnknownFunc, name, known)
	}
	return f, nil
}
