package activities_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

func (w *testEnv) attempt(a record.Address) record.Attempt {
	w.t.Helper()
	got, err := w.store.Attempt(w.t.Context(), a)
	require.NoError(w.t, err)
	return got
}

func answers(result string) agent.Func {
	return func(context.Context, agent.Task, agent.Env) (string, error) { return result, nil }
}

func TestAnAttemptIsRecordedAndGraded(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	v := w.start(w.spec())
	runner := w.runner(w.serve(w.gateway()), func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
		_, err := ask(ctx, env, task.Input)
		return " 42\n", err
	})
	in := rollout(0, 0)
	got, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
	require.NoError(t, err)
	require.Equal(t, 1, got.Attempt)
	require.Equal(t, record.OutcomeCompleted, got.Outcome)
	require.InDelta(t, 1, *got.Reward, 0)
	require.Equal(t, 1, got.Calls)
	require.Positive(t, got.Tokens)
	sealed := w.attempt(at(in, 1))
	require.Equal(t, record.OutcomeCompleted, sealed.Outcome)
	require.Equal(t, "a", sealed.TaskID)
	require.Equal(t, got.Tokens, sealed.Tokens)
	require.True(t, sealed.Terms.Graded)
	calls, err := w.store.Calls(t.Context(), at(in, 1))
	require.NoError(t, err)
	require.Len(t, calls, 1)
	require.Equal(t, v.Weights, calls[0].Weights)
}

func TestGradersDecideWhatAResultIsWorth(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		grader spec.Grader
		result string
		reward float64
	}{
		"exact, right":         {spec.Grader{Type: "exact"}, "42", 1},
		"exact, another form":  {spec.Grader{Type: "exact"}, "42.0", 0},
		"numeric, near":        {spec.Grader{Type: "numeric", Tolerance: 0.1}, "42.05", 1},
		"numeric, far":         {spec.Grader{Type: "numeric", Tolerance: 0.1}, "42.2", 0},
		"numeric, no number":   {spec.Grader{Type: "numeric"}, "forty-two", 0},
		"exact, empty result":  {spec.Grader{Type: "exact"}, "", 0},
		"contains, among more": {spec.Grader{Type: "contains"}, "it is 42.", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			s := w.spec()
			s.Grader = c.grader
			w.prepare(s)
			got, err := do[activities.RunAgentResult](t, w.runner("", answers(c.result)).RunAgent, rollout(0, 0))
			require.NoError(t, err)
			require.Equal(t, record.OutcomeCompleted, got.Outcome)
			require.InDelta(t, c.reward, *got.Reward, 0)
		})
	}
}

func TestAnAgentThatFailsGetsTheFailureReward(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent agent.Func
		word  string
	}{
		"error": {func(context.Context, agent.Task, agent.Env) (string, error) {
			return "42", errors.New("lost the thread")
		}, "error: lost the thread"},
		"panic": {func(context.Context, agent.Task, agent.Env) (string, error) {
			panic("index out of its mind")
		}, "panic: index out of its mind"},
		"time limit": {func(ctx context.Context, _ agent.Task, _ agent.Env) (string, error) {
			<-ctx.Done()
			return "42", nil
		}, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			s := w.spec()
			if name == "time limit" {
				s.Agent.Limits.Seconds = 0.05
			}
			w.prepare(s)
			in := rollout(0, 0)
			got, err := do[activities.RunAgentResult](t, w.runner("", c.agent).RunAgent, in)
			require.NoError(t, err)
			require.Equal(t, record.AgentFailed, got.Outcome)
			require.InDelta(t, -0.5, *got.Reward, 0)
			sealed := w.attempt(at(in, 1))
			require.Equal(t, record.AgentFailed, sealed.Outcome)
			require.InDelta(t, -0.5, *sealed.Reward, 0)
			require.Contains(t, sealed.Error, c.word)
			require.Empty(t, sealed.Result)
		})
	}
}

// requireFault requires that the attempt ended as a fault of the infrastructure, without
// a reward.
func (w *testEnv) requireFault(a record.Address) {
	w.t.Helper()
	sealed := w.attempt(a)
	require.Equal(w.t, record.InfraFault, sealed.Outcome)
	require.Nil(w.t, sealed.Reward)
	require.NotEmpty(w.t, sealed.Error)
}

// outage is a gateway that reports a fault while it is down.
type outage struct {
	http.Handler
	down  atomic.Bool
	asked atomic.Int64
	again chan struct{} // closed when a request comes again while it is down
}

func (o *outage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !o.down.Load() {
		o.Handler.ServeHTTP(w, r)
		return
	}
	if o.asked.Add(1) == 2 {
		close(o.again)
	}
	w.Header().Set(protocol.FaultHeader, "test")
	w.WriteHeader(http.StatusServiceUnavailable)
}

func TestAFaultThatTheAgentSawYieldsNoReward(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	door := &outage{Handler: w.gateway(), again: make(chan struct{})}
	door.down.Store(true)
	runner := w.runner(w.serve(door), func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
		if !door.down.Load() {
			_, err := ask(ctx, env, task.Input)
			return "42", err
		}
		client, leave := context.WithCancel(ctx)
		defer leave()
		go func() {
			select {
			case <-door.again:
				leave()
			case <-client.Done():
			}
		}()
		_, _ = ask(client, env, task.Input) // the agent gives up and guesses
		return "42", nil
	})
	in := rollout(0, 0)
	_, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
	requireRetryable(t, err, at(in, 1).String())
	w.requireFault(at(in, 1))

	door.down.Store(false)
	got, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
	require.NoError(t, err)
	require.Equal(t, 2, got.Attempt)
	require.Equal(t, 1, got.Calls)
	require.InDelta(t, 1, *got.Reward, 0)
	w.requireFault(at(in, 1))
}

func TestAnAgentThatWaitsOutAFaultIsRewarded(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	door := &outage{Handler: w.gateway(), again: make(chan struct{})}
	door.down.Store(true)
	go func() {
		<-door.again
		door.down.Store(false)
	}()
	runner := w.runner(w.serve(door), func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
		_, err := ask(ctx, env, task.Input)
		return "42", err
	})
	got, err := do[activities.RunAgentResult](t, runner.RunAgent, rollout(0, 0))
	require.NoError(t, err)
	require.Equal(t, 1, got.Attempt)
	require.Equal(t, 1, got.Calls)
	require.InDelta(t, 1, *got.Reward, 0)
	require.GreaterOrEqual(t, door.asked.Load(), int64(2))
}

func TestAWorkerThatStopsSealsAFault(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.prepare(w.spec())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	in := rollout(0, 0)
	runner := w.runner("", func(agentCtx context.Context, _ agent.Task, _ agent.Env) (string, error) {
		stop()
		<-agentCtx.Done()
		return "42", nil
	})
	_, err := do[activities.RunAgentResult](t, runner.RunAgent, in, under(ctx))
	requireRetryable(t, err, at(in, 1).String())
	w.requireFault(at(in, 1))

	got, err := do[activities.RunAgentResult](t, w.runner("", answers("42")).RunAgent, in)
	require.NoError(t, err)
	require.Equal(t, 2, got.Attempt)
	require.InDelta(t, 1, *got.Reward, 0)
}

// lostAgent is a launcher that has lost its agent and waits for it for ever.
type lostAgent struct{}

func (lostAgent) Launcher(spec.Spec) (agent.Launcher, error) { return lostAgent{}, nil }

func (lostAgent) Launch(ctx context.Context, _ agent.Job) (agent.Result, error) {
	<-ctx.Done()
	return agent.Result{}, context.Cause(ctx)
}

func TestAWorkerThatStandsStillGivesTheAttemptUp(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	s.Agent.Limits.Seconds = 0.01
	w.prepare(s)
	runner := w.runner("", nil)
	runner.Launchers = lostAgent{}
	activities.Hurry(runner, time.Millisecond)
	in := rollout(0, 0)
	_, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
	requireRetryable(t, err, at(in, 1).String(), "activity makes no progress")
	w.requireFault(at(in, 1))
}

func TestWhatNoRetryMendsEndsARollout(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	s.Agent.Func = "another"
	w.prepare(s)
	runner := w.runner("", answers("42"))
	_, err := do[activities.RunAgentResult](t, runner.RunAgent, rollout(0, 0))
	requireFinal(t, err, "another", "this worker has: agent")
	_, err = do[activities.RunAgentResult](t, runner.RunAgent, rollout(2, 0))
	requireFinal(t, err, "task 2 of the train split", "there are 2")
}
