package trial

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"time"

	"go.temporal.io/sdk/client"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

const (
	// hopelessAfter is the number of the attempt at which a trial gives an activity up:
	// it has then failed four times in seven seconds or more.
	hopelessAfter = 5
	// agentHopelessAfter is the same for an agent's activities. An activity that fails
	// five times because of the agent or its task ends by itself.
	agentHopelessAfter = 6
	// unansweredAfter is for how long no call may be recorded after a call could not be
	// answered. After that, the trial assumes that calls will never be answered.
	unansweredAfter = 30 * time.Second
	// watchEvery is how often a trial is checked.
	watchEvery = 250 * time.Millisecond
	// dialLimit is how long a server may take to be connected to.
	dialLimit = 10 * time.Second
)

// watcher watches a trial for activities that a run would retry for ever.
type watcher struct {
	st       *stack.Stack
	warnings *observer.ObservedLogs // of the stack
	rollouts []trace.RolloutID
	// calls that were recorded, and when their number changed last.
	calls int
	since time.Time
}

// watch runs a trial to its end, or until something of it is tried again and
// again without success. Then it is ended, and stuck says what that was.
func (l *watcher) watch(ctx context.Context, input workflows.TryInput) (out workflows.TryResult, stuck *runstate.Blockage, err error) {
	run, err := l.st.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: trialRun, TaskQueue: workflows.QueueTraining}, "TryWorkflow", input)
	if err != nil {
		return out, nil, fmt.Errorf("start the trial: %w", err)
	}
	watch, end := context.WithCancel(ctx)
	found := make(chan *runstate.Blockage, 1)
	go func() {
		b := l.hopeless(watch)
		if b != nil {
			// The end of the workflow wakes the goroutine that waits for it.
			_ = l.st.Client.TerminateWorkflow(watch, trialRun, "", b.Failure)
		}
		found <- b
	}()
	err = run.Get(ctx, &out)
	end()
	if stuck = <-found; stuck != nil {
		return out, stuck, nil
	}
	if err != nil {
		return out, nil, fmt.Errorf("trial: %w", err)
	}
	return out, nil, nil
}

// hopeless waits until an activity needs a person to go on, and returns it. It is nil
// once ctx is done.
func (l *watcher) hopeless(ctx context.Context) *runstate.Blockage {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		all, err := runstate.Blockages(ctx, l.st.Client, trialRun)
		if err != nil {
			continue // the trial's own end is what tells
		}
		for _, b := range all {
			if b.Attempt >= hopelessAttempt(b.Activity) {
				b.Failure = fmt.Sprintf("%s was tried %d times without success: %s", b.Activity, b.Attempt-1, b.Failure)
				return &b
			}
		}
		if b := l.unanswered(ctx); b != nil {
			return b
		}
	}
}

// hopelessAttempt returns the number of an activity's attempt at which the trial gives
// up.
func hopelessAttempt(activity string) int {
	switch activity {
	case "RunAgent", "BeginAttempt", "EndAttempt", "GradeRollout":
		return agentHopelessAfter
	}
	return hopelessAfter
}

// unanswered finds out that a call of an agent could not be answered, and none was
// for a while since. The agent sees nothing of it: it waits.
func (l *watcher) unanswered(ctx context.Context) *runstate.Blockage {
	faults := l.warnings.FilterMessage(faultMessage).All()
	if len(faults) == 0 {
		return nil
	}
	calls := 0
	for _, id := range l.rollouts {
		progress, err := l.st.Store.AttemptProgress(ctx, id)
		if err != nil {
			return nil
		}
		for _, p := range progress {
			calls += p.Calls
		}
	}
	if calls != l.calls || l.since.IsZero() {
		l.calls, l.since = calls, time.Now()
	}
	if time.Since(faults[0].Time) < unansweredAfter || time.Since(l.since) < unansweredAfter {
		return nil
	}
	return &runstate.Blockage{Workflow: trialRun, Failure: fmt.Sprintf("no model call was answered for %s: %s", unansweredAfter, faults[0].ContextMap()["error"])}
}

// faultMessage is what the forwarder logs, with the error, of a call that it could not get
// answered.
const faultMessage = "gateway fault, asking again"

// unreachable returns a text if the spec names servers and none of them accepts a
// connection. It returns "" otherwise.
func unreachable(ctx context.Context, s spec.Spec) string {
	if s.Sampling.Server == nil {
		return ""
	}
	text := ""
	for _, address := range s.Sampling.Server.URLs {
		u, err := url.Parse(address)
		if err != nil {
			continue // the spec was checked
		}
		port := u.Port()
		if port == "" {
			port = u.Scheme
		}
		dialer := net.Dialer{Timeout: dialLimit}
		c, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
		if err == nil {
			_ = c.Close() // nothing was sent
			return ""
		}
		text = fmt.Sprintf("sampling.server.urls: no server can be reached, and calls would wait for one: %s: %s", address, err)
	}
	return text
}
