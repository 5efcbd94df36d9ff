package activities_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
)

// How long tests wait for an event, and how often they check for it.
const (
	testTimeout = 30 * time.Second
	tick        = 5 * time.Millisecond
)

// begin begins an attempt as another worker would, after Temporal has given up on
// the one before.
func (w *testEnv) begin(in activities.RunAgentInput) record.Address {
	w.t.Helper()
	before, err := w.store.CurrentAttempt(w.t.Context(), in.Rollout)
	require.NoError(w.t, err)
	a, err := w.store.BeginAttempt(w.t.Context(), in.Rollout, before.TaskID, before.Terms, "another key")
	require.NoError(w.t, err)
	return a
}

// requireLost holds that the attempt has n calls and nothing else: it was replaced
// before it ended.
func (w *testEnv) requireLost(a record.Address, n int) {
	w.t.Helper()
	got := w.attempt(a)
	require.Equal(w.t, record.OutcomeRunning, got.Outcome)
	require.Nil(w.t, got.Reward)
	require.Equal(w.t, n, got.Calls)
	rewards, err := w.store.Rewards(w.t.Context(), a)
	require.NoError(w.t, err)
	require.Empty(w.t, rewards)
	events, err := w.store.Events(w.t.Context(), a)
	require.NoError(w.t, err)
	require.Empty(w.t, events)
}

func TestReplacedWorkerLearnsItFromTheGatewayAndEnds(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	byAgent(&s)
	w.start(s)
	url := w.serve(w.gateway())
	in := rollout(0, 0)
	ended := make(chan struct{})
	zombie := w.runner(url, func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
		defer close(ended)
		_, err := ask(ctx, env, task.Input)
		require.NoError(t, err)
		w.begin(in)

		// The same at the gateway itself, with the key that was valid a moment ago.
		base := url + "/r/" + at(in, 1).String()
		for path, body := range map[string]string{
			"/v1/chat/completions": `{"messages":[{"role":"user","content":"another"}]}`,
			"/rewards":             `{"reward": 1}`, "/events": `{"name": "done"}`,
		} {
			_, err := post(ctx, env, base+path, []byte(body))
			require.ErrorContains(t, err, "status 409")
			require.ErrorContains(t, err, `"code":"attempt_fenced"`)
		}

		_, err = ask(ctx, env, "yet another")
		require.Error(t, err)
		<-ctx.Done() // nobody but the gateway has told the worker
		return "42", env.Reward(1)
	})
	_, err := do[activities.RunAgentResult](t, zombie.RunAgent, in)
	requireRetryable(t, err, at(in, 1).String(), "attempt is fenced")
	<-ended
	w.requireLost(at(in, 1), 1)

	second, err := w.store.CurrentAttempt(t.Context(), in.Rollout)
	require.NoError(t, err)
	require.Equal(t, 2, second.Attempt)
	require.Zero(t, second.Calls)
}

func TestReplacedAttemptCanNeitherFinishNorBeGraded(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.prepare(w.spec())
	in := rollout(0, 0)
	zombie := w.runner("", func(context.Context, agent.Task, agent.Env) (string, error) {
		w.begin(in)
		return "42", nil // correct, but too late
	})
	_, err := do[activities.RunAgentResult](t, zombie.RunAgent, in)
	requireRetryable(t, err, "seal attempt "+at(in, 1).String(), "attempt is fenced")
	w.requireLost(at(in, 1), 0)
	err = w.store.PutReward(t.Context(), record.Reward{Address: at(in, 1), Name: "final", Value: 1, Source: "grader"})
	require.ErrorIs(t, err, record.ErrFenced)
}

// A worker was suspended while it waited for work. When it gets its task, the rollout has
// already ended.
func TestRolloutThatHasEndedIsNotAttemptedAgain(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"completed": nil, "failed": errors.New("lost")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			w.prepare(w.spec())
			launched := 0
			runner := w.runner("", func(context.Context, agent.Task, agent.Env) (string, error) {
				launched++
				return "42", err
			})
			in := rollout(0, 0)
			first, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
			require.NoError(t, err)
			hidesVersion, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
			require.NoError(t, err)
			require.Equal(t, first, hidesVersion)
			require.Equal(t, 1, launched)
			err = w.store.PutReward(t.Context(), record.Reward{Address: at(in, 1), Name: "style", Value: 1, Source: "grader"})
			require.NoError(t, err, "it is not fenced")
		})
	}
}

func TestReplacedCommandIsKilled(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.playing("insist")
	s.Agent.Limits.Calls = 1e6
	w.start(s)
	in := rollout(0, 0)
	worker := w.worker()
	end := make(chan error, 1)
	go func() {
		_, err := do[activities.RunAgentResult](t, worker.RunAgent, in)
		end <- err
	}()
	require.Eventually(t, func() bool {
		a, err := w.store.Attempt(t.Context(), at(in, 1))
		return err == nil && a.Calls > 0
	}, testTimeout, tick)
	w.begin(in)
	requireRetryable(t, <-end, "attempt is fenced")
	left, err := os.ReadDir(filepath.Join(w.dir, "scratch"))
	require.NoError(t, err)
	require.Empty(t, left, "a home is removed when its last process is dead")
}

// The old attempt hangs and makes no calls. Temporal has given up on its worker, which
// doesn't notice. The new attempt runs on the same machine.
func TestNewAttemptBesideTheOldOneGoesAhead(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	ran := filepath.Join(w.dir, "ran")
	w.start(w.playing("hang-once", ran))
	in := rollout(0, 0)
	zombie := w.worker()
	end := make(chan error, 1)
	go func() {
		_, err := do[activities.RunAgentResult](t, zombie.RunAgent, in)
		end <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(ran); return err == nil }, testTimeout, tick)
	got, err := do[activities.RunAgentResult](t, w.worker().RunAgent, in)
	require.NoError(t, err)
	require.Equal(t, 2, got.Attempt)
	require.InDelta(t, 1, *got.Reward, 0)
	requireRetryable(t, <-end, at(in, 1).String(), "killed", "attempt is fenced")
	w.requireLost(at(in, 1), 0)
}
