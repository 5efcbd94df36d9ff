package activities_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

func TestAnAttemptWithoutItsToolsYieldsNoRewardAndIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	var away atomic.Bool
	tools := w.serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	s := w.spec()
	s.Agent.ToolServers = []string{tools}
	w.start(s)
	launched := 0
	runner := w.runner(w.serve(w.gateway()), nil)
	runner.Launchers = fleet.Launchers{Functions: agent.Registry{"agent": func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
		launched++
		if _, err := ask(ctx, env, task.Input); err != nil {
			return "", err
		}
		away.Store(launched == 1)
		return "42", nil
	}}}
	in := rollout(0, 0)
	_, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
	requireRetryable(t, err, "server of tools "+tools)
	w.requireFault(at(in, 1))
	_, err = do[activities.RunAgentResult](t, runner.RunAgent, in)
	requireRetryable(t, err, "before the attempt: server of tools "+tools)
	w.requireFault(at(in, 2))
	require.Equal(t, 1, launched)

	away.Store(false)
	got, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
	require.NoError(t, err)
	require.Equal(t, 3, got.Attempt)
	require.InDelta(t, 1, *got.Reward, 0)
	calls, err := w.store.Exchanges(t.Context(), at(in, 3))
	require.NoError(t, err)
	require.Equal(t, []int{1}, replayedFrom(calls), "what was recorded is not sampled again")
}

func replayedFrom(calls []record.Exchange) []int {
	var out []int
	for _, c := range calls {
		out = append(out, c.ReplayedFrom)
	}
	return out
}
