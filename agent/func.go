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

	"github.com/fulgurite/fulgurite/trace"
)

// Func is an agent written as a Go function that runs inside the worker. It
// returns what is to be graded. A panic of its own goroutine becomes a Failure;
// one in a goroutine that it starts ends the worker, as in any Go program.
//
// A function must return soon after its context ends. One that doesn't is left
// behind after two seconds, and runs on with nobody waiting for it.
type Func func(ctx context.Context, task Task, env Env) (string, error)

// Env is what a function knows of its attempt.
type Env struct {
	BaseURL   string // for model calls, ends in "/v1"
	Key       string
	Model     string
	RewardURL string // takes POSTs of {"name", "value"}
	EventURL  string // takes POSTs of {"name", "fields"}
	Rollout   trace.RolloutID
	// Variables are those of the job's Environment.
	Variables map[string]string

	report *report
}

// Reward reports the attempt's reward; the last report counts. It must be a
// finite number.
func (e Env) Reward(value float64) error {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return fmt.Errorf("report reward: %v is not a finite number", value)
	}
	if e.report == nil {
		return errors.New("report reward: not in an attempt")
	}
	e.report.set(value)
	return nil
}

type report struct {
	mu    sync.Mutex
	value *float64
}

func (r *report) set(v float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.value = &v
}

func (r *report) last() *float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value
}

// returned is how a call of a Func came back.
type returned struct {
	text     string
	err      error
	panicked string // value and stack
}

// Launch calls the function in a goroutine of its own.
func (f Func) Launch(ctx context.Context, job Job) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, job.infrastructure(context.Cause(ctx))
	}
	env := Env{
		BaseURL: job.BaseURL, Key: job.Key, Model: job.model(),
		RewardURL: job.rewardURL(), EventURL: job.eventURL(),
		Rollout: job.Address.RolloutID, Variables: maps.Clone(job.Environment),
		report: &report{},
	}
	bounded, stop := limited(ctx, job)
	defer stop()
	back := make(chan returned, 1)
	go f.call(bounded, job.Task, env, back)
	job.progressed()

	var r returned
	select {
	case r = <-back:
	case <-bounded.Done():
		awaitEnd(back)
	}
	if ctx.Err() != nil {
		return Result{}, job.infrastructure(context.Cause(ctx))
	}
	if errors.Is(context.Cause(bounded), errTimeLimit) {
		return Result{Failure: Timeout, Message: fmt.Sprintf("no result within %s", job.Limits.Time)}, nil
	}
	return r.result(env.report.last()), nil
}

// call always sends once, also when the function panics or ends its goroutine.
func (f Func) call(ctx context.Context, task Task, env Env, back chan<- returned) {
	r := returned{panicked: "the function ended its goroutine"}
	defer func() {
		if v := recover(); v != nil {
			r.panicked = fmt.Sprintf("%v\n%s", v, debug.Stack())
		}
		back <- r
	}()
	text, err := f(ctx, task, env)
	r = returned{text: text, err: err}
}

func awaitEnd(back <-chan returned) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-back:
	case <-timer.C:
	}
}

func (r returned) result(reward *float64) Result {
	switch {
	case r.panicked != "":
		return Result{Failure: Panic, Message: head(r.panicked, tailBytes)}
	case r.err != nil:
		return Result{Failure: Error, Message: head(r.err.Error(), tailBytes)}
	default:
		return Result{Text: head(r.text, resultBytes), Reward: reward}
	}
}

// ErrUnknownFunc is wrapped when a Registry has no function of a name.
var ErrUnknownFunc = errors.New("no such agent function")

// Registry holds the functions of a worker by the name that a spec gives.
type Registry map[string]Func

// Launcher is the function called name.
func (r Registry) Launcher(name string) (Launcher, error) {
	f, ok := r[name]
	if !ok {
		known := strings.Join(slices.Sorted(maps.Keys(r)), ", ")
		return nil, fmt.Errorf("%w: %q; this worker has: %s", ErrUnknownFunc, name, known)
	}
	return f, nil
}
