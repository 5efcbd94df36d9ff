package agent_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
)

func TestFuncGetsTheTaskAndItsSurroundings(t *testing.T) {
	t.Parallel()
	j := job("demo")
	j.Environment = map[string]string{"MODE": "fast"}
	f := agent.Func(func(_ context.Context, task agent.Task, env agent.Env) (string, error) {
		require.Equal(t, j.Task, task)
		require.Equal(t, j.BaseURL, env.BaseURL)
		require.Equal(t, "http://127.0.0.1:1/r/demo/train-3/17/2/1/rewards", env.RewardURL)
		require.Equal(t, "http://127.0.0.1:1/r/demo/train-3/17/2/1/events", env.EventURL)
		require.Equal(t, j.Key, env.Key)
		require.Equal(t, agent.DefaultModel, env.Model)
		require.Equal(t, j.Address.RolloutID, env.Rollout)
		require.Equal(t, "fast", env.Variables["MODE"])
		return "42", nil
	})
	got, err := f.Launch(t.Context(), j)
	require.NoError(t, err)
	require.Equal(t, agent.Result{Text: "42"}, got)
}

func TestWhateverAFuncDoesWrongIsItsFailure(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		f       agent.Func
		failure agent.Failure
		message string
	}{
		{"error", func(context.Context, agent.Task, agent.Env) (string, error) { return "42", errors.New("no idea") }, agent.Error, "no idea"},
		{"panic", func(context.Context, agent.Task, agent.Env) (string, error) { panic("oh dear") }, agent.Panic, "oh dear\n"},
		{"goexit", func(context.Context, agent.Task, agent.Env) (string, error) { runtime.Goexit(); return "42", nil }, agent.Panic, "ended its goroutine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := c.f.Launch(t.Context(), job("demo"))
			require.NoError(t, err)
			require.Equal(t, c.failure, got.Failure)
			require.Contains(t, got.Message, c.message)
			require.Empty(t, got.Text)
			if c.name == "panic" {
				require.Contains(t, got.Message, "func_test.go", "the stack says where")
			}
		})
	}
}

func TestLongResultsAreWholeOrAFailure(t *testing.T) {
	t.Parallel()
	for length, failure := range map[int]agent.Failure{1 << 20: "", 1<<20 + 1: agent.OutputLimit} {
		text := strings.Repeat("x", length-3) + " 42"
		got, err := agent.Func(func(context.Context, agent.Task, agent.Env) (string, error) { return text, nil }).Launch(t.Context(), job("demo"))
		require.NoError(t, err)
		require.Equal(t, failure, got.Failure)
		if failure == "" {
			require.True(t, text == got.Text)
		}
		j := job("demo")
		j.Task.Input = text
		got = launch(t, j, "echo")
		require.Equal(t, failure, got.Failure)
		if failure == "" {
			require.True(t, text == got.Text)
		}
	}
}

func TestRewardThatWasReportedLastCountsAlsoWhenItIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reports []float64
		refusal string
	}{
		{[]float64{1, 11}, "report reward: 11 is beyond the limit of 10"},
		{[]float64{1, -11}, "report reward: -11 is beyond the limit of 10"},
		{[]float64{1, math.NaN()}, "report reward: NaN is not a finite number"},
		{[]float64{11, -10}, ""},
	} {
		j := job("demo")
		j.Limits.Reward = 10
		got, err := agent.Func(func(_ context.Context, _ agent.Task, env agent.Env) (string, error) {
			for _, r := range c.reports {
				_ = env.Reward(r)
			}
			return "", nil
		}).Launch(t.Context(), j)
		require.NoError(t, err)
		require.Equal(t, c.refusal, got.RewardError)
		require.Equal(t, c.refusal == "", got.Reward != nil)
	}
}

func TestFuncReportsItsRewardOnceItIsANumber(t *testing.T) {
	t.Parallel()
	f := agent.Func(func(_ context.Context, _ agent.Task, env agent.Env) (string, error) {
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			require.Error(t, env.Reward(bad))
		}
		require.NoError(t, env.Reward(0.25))
		return "", env.Reward(0.5)
	})
	got, err := f.Launch(t.Context(), job("demo"))
	require.NoError(t, err)
	require.NotNil(t, got.Reward)
	require.InDelta(t, 0.5, *got.Reward, 0)
	require.Error(t, agent.Env{}.Reward(1), "there is no attempt to reward")
}

// obedient returns when its context ends.
func obedient(ctx context.Context, _ agent.Task, _ agent.Env) (string, error) {
	<-ctx.Done()
	return "late", ctx.Err()
}

func TestTimeLimitEndsAFunc(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		deaf := func(context.Context, agent.Task, agent.Env) (string, error) { <-over; return "late", nil }
		for _, c := range []struct {
			f    agent.Func
			took time.Duration
		}{{obedient, time.Minute}, {deaf, time.Minute + 2*time.Second}} {
			j := job("demo")
			j.Limits.Time = time.Minute
			began := time.Now()
			got, err := c.f.Launch(t.Context(), j)
			require.NoError(t, err)
			require.Equal(t, agent.Result{Failure: agent.Timeout, Message: "still running after 1m0s"}, got)
			require.Equal(t, c.took, time.Since(began))
		}
		close(over)
	})
}

func TestHangEndsAFunc(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		j := job("demo")
		j.Limits.Time, j.Limits.Idle = time.Hour, time.Minute
		j.Idle = func() time.Duration { return max(0, time.Since(began)-10*time.Minute) } // calls, up to then
		got, err := agent.Func(obedient).Launch(t.Context(), j)
		require.NoError(t, err)
		require.Equal(t, agent.Result{Failure: agent.Hang, Message: "no model call and no output for 1m0s"}, got)
		require.Equal(t, 11*time.Minute, time.Since(began))
	})
}

func TestTimeHeldUpByFaultsIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		j := job("demo")
		j.Limits.Time = time.Minute
		j.Waited = func() time.Duration { return min(time.Since(began), time.Hour) } // an hour's outage
		got, err := agent.Func(obedient).Launch(t.Context(), j)
		require.NoError(t, err)
		require.Equal(t, agent.Timeout, got.Failure)
		require.Equal(t, time.Hour+time.Minute, time.Since(began))
	})
}

func TestEndOfTheContextIsAFaultAndNoFailure(t *testing.T) {
	t.Parallel()
	stopping := errors.New("worker is stopping")
	ctx, cancel := context.WithCancelCause(t.Context())
	f := agent.Func(func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
		cancel(stopping)
		return obedient(ctx, task, env)
	})
	_, err := f.Launch(ctx, job("demo"))
	require.ErrorIs(t, err, stopping)
	require.ErrorContains(t, err, "run agent demo/train-3/17/2/1")
	_, err = f.Launch(ctx, job("demo"))
	require.ErrorIs(t, err, stopping, "nothing starts after the end")
	_, err = agent.Command{Args: acting("echo"), Scratch: t.TempDir()}.Launch(ctx, job("demo"))
	require.ErrorIs(t, err, stopping)
}

func TestRegistryKnowsItsFunctionsByName(t *testing.T) {
	t.Parallel()
	r := agent.Registry{"waits": obedient, "answers": func(context.Context, agent.Task, agent.Env) (string, error) { return "42", nil }}
	l, err := r.Launcher("answers")
	require.NoError(t, err)
	got, err := l.Launch(t.Context(), job("demo"))
	require.NoError(t, err)
	require.Equal(t, "42", got.Text)
	_, err = r.Launcher("answer")
	require.ErrorIs(t, err, agent.ErrUnknownFunc)
	require.ErrorContains(t, err, `"answer"; this worker has: answers, waits`)
}
