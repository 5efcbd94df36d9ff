package activities_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

func TestAnAgentMayReportItsOwnReward(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]agent.Func{
		"by POST": func(ctx context.Context, _ agent.Task, env agent.Env) (string, error) {
			_, err := post(ctx, env, env.RewardURL, []byte(`{"reward": 0.75}`))
			return "done", err
		},
		"by Env.Reward": func(_ context.Context, _ agent.Task, env agent.Env) (string, error) {
			return "done", env.Reward(0.75)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.spec()
			s.Grader = spec.Grader{Type: "agent"}
			w.prepare(s)
			in := rollout(0, 0)
			got, err := do[activities.RunAgentResult](t, w.runner(w.serve(w.gateway()), f).RunAgent, in)
			require.NoError(t, err)
			require.Equal(t, trace.Completed, got.Outcome)
			require.InDelta(t, 0.75, *got.Reward, 0)
			require.InDelta(t, 0.75, *w.attempt(at(in, 1)).Reward, 0)
		})
	}
}

func TestAnAgentThatReportsNoRewardHasFailed(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]agent.Func{
		"nothing": answers("done"),
		"a reward of another name": func(ctx context.Context, _ agent.Task, env agent.Env) (string, error) {
			_, err := post(ctx, env, env.RewardURL, []byte(`{"name": "style", "value": 1}`))
			return "done", err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.spec()
			s.Grader = spec.Grader{Type: "agent"}
			w.prepare(s)
			in := rollout(0, 0)
			got, err := do[activities.RunAgentResult](t, w.runner(w.serve(w.gateway()), f).RunAgent, in)
			require.NoError(t, err)
			require.Equal(t, trace.AgentFailed, got.Outcome)
			require.InDelta(t, -0.5, *got.Reward, 0)
			require.Equal(t, "the agent reported no reward", w.attempt(at(in, 1)).Error)
		})
	}
}

func TestPostedRewardsAreRefusedWhereAGraderDecides(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.prepare(w.spec())
	var refusal error
	runner := w.runner(w.serve(w.gateway()), func(ctx context.Context, _ agent.Task, env agent.Env) (string, error) {
		_, refusal = post(ctx, env, env.RewardURL, []byte(`{"reward": 1}`))
		return "wrong", env.Reward(1)
	})
	in := rollout(0, 0)
	got, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
	require.NoError(t, err)
	require.ErrorContains(t, refusal, "status 403")
	require.Zero(t, *got.Reward)
	rewards, err := w.store.Rewards(t.Context(), at(in, 1))
	require.NoError(t, err)
	require.Empty(t, rewards)
}

func TestAGraderCommandIsAskedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	self, err := os.Executable()
	require.NoError(t, err)
	asked := filepath.Join(w.dir, "asked")
	s := w.spec()
	s.Grader = spec.Grader{Type: "command", Command: []string{self, "grade", asked}}
	w.prepare(s)
	runner := w.runner("", answers("anything"))
	in := rollout(0, 0)
	run, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
	require.NoError(t, err)
	require.Nil(t, run.Reward, "the grader has yet to decide")

	question := activities.GradeRolloutInput{Address: at(in, run.Attempt), Index: 0}
	for range 2 {
		got, err := do[activities.GradeRolloutResult](t, runner.GradeRollout, question)
		require.NoError(t, err)
		require.InDelta(t, 1, got.Reward, 0)
	}
	// Another worker that had asked before the first reward was recorded finds it.
	other := w.runner("", answers("anything"))
	other.Attempts = forgetful{w.store, new(int)}
	got, err := do[activities.GradeRolloutResult](t, other.GradeRollout, question)
	require.NoError(t, err)
	require.InDelta(t, 1, got.Reward, 0)
	times, err := os.ReadFile(asked)
	require.NoError(t, err)
	require.Equal(t, "..", string(times))
	require.InDelta(t, 1, *w.attempt(question.Address).Reward, 0)
}

// forgetful sees no reward the first time.
type forgetful struct {
	activities.Attempts
	looked *int
}

func (f forgetful) Rewards(ctx context.Context, a trace.Address) ([]trace.Reward, error) {
	if *f.looked++; *f.looked == 1 {
		return nil, nil
	}
	return f.Attempts.Rewards(ctx, a)
}

func TestABrokenGraderIsAClearErrorAndNoReward(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	self, err := os.Executable()
	require.NoError(t, err)
	s := w.spec()
	s.Grader = spec.Grader{Type: "command", Command: []string{self, "grade", filepath.Join(w.dir, "no", "such", "folder")}}
	w.prepare(s)
	runner := w.runner("", answers("anything"))
	in := rollout(0, 0)
	_, err = do[activities.RunAgentResult](t, runner.RunAgent, in)
	require.NoError(t, err)
	_, err = do[activities.GradeRolloutResult](t, runner.GradeRollout, activities.GradeRolloutInput{Address: at(in, 1)})
	requireRetryable(t, err, "grade attempt "+at(in, 1).String(), "grader failed")
	require.ErrorContains(t, err, "no such file", "what the grader wrote is quoted")
	require.Nil(t, w.attempt(at(in, 1)).Reward)
}
