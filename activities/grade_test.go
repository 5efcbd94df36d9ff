package activities_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
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
			w := newTestEnv(t)
			s := w.spec()
			s.Grader = spec.Grader{Type: "agent"}
			w.prepare(s)
			in := rollout(0, 0)
			got, err := do[activities.RunAgentResult](t, w.runner(w.serve(w.gateway()), f).RunAgent, in)
			require.NoError(t, err)
			require.Equal(t, record.OutcomeCompleted, got.Outcome)
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
			w := newTestEnv(t)
			s := w.spec()
			s.Grader = spec.Grader{Type: "agent"}
			w.prepare(s)
			in := rollout(0, 0)
			got, err := do[activities.RunAgentResult](t, w.runner(w.serve(w.gateway()), f).RunAgent, in)
			require.NoError(t, err)
			require.Equal(t, record.AgentFailed, got.Outcome)
			require.InDelta(t, -0.5, *got.Reward, 0)
			require.Equal(t, "no_reward", w.attempt(at(in, 1)).Failure)
			require.Equal(t, "no_reward: the agent reported no reward", w.attempt(at(in, 1)).Error)
		})
	}
}

// posting returns an agent that posts rewards, whatever comes of it, and then answers.
func posting(answer string, bodies ...string) agent.Func {
	return func(ctx context.Context, _ agent.Task, env agent.Env) (string, error) {
		for _, body := range bodies {
			_, _ = post(ctx, env, env.RewardURL, []byte(body))
		}
		return answer, nil
	}
}

func TestAnAnswerIsNoReward(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent    agent.Func
		lastLine bool
		reward   float64
		failure  string
		error    string
	}{
		"a number":                       {agent: answers("41"), failure: "no_reward", error: "only with grader.reward: last_line"},
		"a number that may be a reward":  {agent: answers("so\n0.75"), lastLine: true, reward: 0.75},
		"an object":                      {agent: answers(`{"reward": 0.75}`), reward: 0.75},
		"after NaN":                      {agent: posting("41", `{"reward": NaN}`), failure: "bad_reward", error: "reward that the agent posted was refused: "},
		"after a text":                   {agent: posting("41", `{"reward": "high"}`), lastLine: true, failure: "bad_reward", error: "want a number"},
		"after a boolean":                {agent: posting("41", `{"reward": true}`), lastLine: true, failure: "bad_reward", error: "want a number"},
		"after null":                     {agent: posting("41", `{"reward": null}`), lastLine: true, failure: "bad_reward", error: "is missing"},
		"after one beyond the limit":     {agent: posting("1", `{"reward": 70}`), lastLine: true, failure: "bad_reward", error: "grader.limit"},
		"after one of an unknown call":   {agent: posting("1", `{"reward": 1, "call_id": "nobody"}`), lastLine: true, failure: "no_reward", error: "reward_refused 1"},
		"after a refused one by name":    {agent: posting("1", `{"name": "style", "value": "x"}`), lastLine: true, failure: "no_reward", error: "reward_refused 1"},
		"an object after a refused one":  {agent: posting(`{"reward": 1}`, `{"reward": NaN}`), failure: "bad_reward", error: "was refused"},
		"a second post after refusal":    {agent: posting("41", `{"reward": NaN}`, `{"reward": 0.75}`), lastLine: true, reward: 0.75},
		"a number after an accepted one": {agent: posting("41", `{"reward": 0.75}`), lastLine: true, reward: 0.75},
		"returned after a refused post": {agent: func(ctx context.Context, _ agent.Task, env agent.Env) (string, error) {
			_, _ = post(ctx, env, env.RewardURL, []byte(`{"reward": NaN}`))
			return "done", env.Reward(1)
		}, failure: "bad_reward", error: "was refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			s := w.spec()
			s.Grader = spec.Grader{Type: "agent", Limit: 50}
			if c.lastLine {
				s.Grader.Reward = spec.RewardLastLine
			}
			w.prepare(s)
			in := rollout(0, 0)
			got, err := do[activities.RunAgentResult](t, w.runner(w.serve(w.gateway()), c.agent).RunAgent, in)
			require.NoError(t, err)
			a := w.attempt(at(in, 1))
			require.Equal(t, c.failure, a.Failure, a.Error)
			require.Contains(t, a.Error, c.error)
			if c.failure == "" {
				require.InDelta(t, c.reward, *got.Reward, 0)
			} else {
				require.InDelta(t, -0.5, *got.Reward, 0)
			}
		})
	}
}

func TestAnAgentWithoutANamedRewardHasFailed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent   agent.Func
		failure string
	}{
		"missing":        {posting("42", `{"reward": 1}`), "no_reward"},
		"given":          {posting("42", `{"reward": 1}`, `{"name": "style", "value": 0}`), ""},
		"refused":        {posting("42", `{"reward": 1}`, `{"name": "style", "value": "x"}`), "no_reward"},
		"without weight": {posting("42", `{"reward": 1}`, `{"name": "style", "value": 1}`, `{"name": "other", "value": 1}`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			s := w.spec()
			s.Grader, s.Credit.Rewards = spec.Grader{Type: "agent"}, map[string]float64{"final": 1, "style": 0.5}
			w.prepare(s)
			in := rollout(0, 0)
			_, err := do[activities.RunAgentResult](t, w.runner(w.serve(w.gateway()), c.agent).RunAgent, in)
			require.NoError(t, err)
			a := w.attempt(at(in, 1))
			require.Equal(t, c.failure, a.Failure)
			if c.failure != "" {
				require.Contains(t, a.Error, `no reward "style", which credit.rewards weighs`)
			}
		})
	}
}

func TestNoFinalRewardIsNeededWhereNoneIsWeighed(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	s.Grader, s.Credit.Rewards = spec.Grader{Type: "agent"}, map[string]float64{"style": 1}
	w.prepare(s)
	in := rollout(0, 0)
	_, err := do[activities.RunAgentResult](t, w.runner(w.serve(w.gateway()), posting("42", `{"name": "style", "value": 1}`)).RunAgent, in)
	require.NoError(t, err)
	require.Equal(t, record.OutcomeCompleted, w.attempt(at(in, 1)).Outcome)
}

func TestPostedRewardsAreRefusedWhereAGraderDecides(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
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
	w := newTestEnv(t)
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
	// Another worker asks the grader before the first reward is recorded. It gets the
	// recorded reward.
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

func TestAGraderGivesNamedRewardsFromTheCallsOfAnAttempt(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	script := `cat > ` + filepath.Join(w.dir, "input") + `; echo '{"reward": 0.5, "rewards": {"verdict": 1}}'`
	s.Grader = spec.Grader{Type: "command", Command: []string{"sh", "-c", script}, Rewards: []string{"verdict"}, Calls: true}
	s.Credit.Rewards = map[string]float64{"final": 1, "verdict": 2}
	w.start(s.WithDefaults())
	runner := w.runner(w.serve(w.gateway()), func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
		return ask(ctx, env, task.Input)
	})
	in := rollout(0, 0)
	run, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
	require.NoError(t, err)
	address := at(in, run.Attempt)
	require.Equal(t, record.OutcomeCompleted, w.attempt(address).Outcome, "the grader gives the reward that the agent did not post")
	got, err := do[activities.GradeRolloutResult](t, runner.GradeRollout, activities.GradeRolloutInput{Address: address})
	require.NoError(t, err)
	require.Equal(t, activities.GradeRolloutResult{Reward: 0.5}, got)
	rewards, err := w.store.Rewards(t.Context(), address)
	require.NoError(t, err)
	named := map[string]float64{}
	for _, r := range rewards {
		require.Equal(t, "grader", r.Source)
		named[r.Name] = r.Value
	}
	require.Equal(t, map[string]float64{"final": 0.5, "verdict": 1}, named)
	input, err := os.ReadFile(filepath.Join(w.dir, "input"))
	require.NoError(t, err)
	var read tasks.GraderInput
	require.NoError(t, json.Unmarshal(input, &read))
	require.Len(t, read.Calls, 1)
	require.Equal(t, "main", read.Calls[0].Policy)
	require.Contains(t, string(read.Calls[0].Request), `"messages"`)
	require.Contains(t, string(read.Calls[0].Response), `"choices"`)
}

// forgetful sees no reward the first time.
type forgetful struct {
	activities.Attempts
	looked *int
}

func (f forgetful) Rewards(ctx context.Context, a record.Address) ([]record.Reward, error) {
	if *f.looked++; *f.looked == 1 {
		return nil, nil
	}
	return f.Attempts.Rewards(ctx, a)
}

// grading runs an agent whose grader is a command. It tries to grade as often as Temporal
// would, as long as the result is an error.
func (w *testEnv) grading(command ...string) (activities.GradeRolloutResult, error) {
	w.t.Helper()
	s := w.spec()
	s.Grader = spec.Grader{Type: "command", Command: command}
	w.prepare(s)
	runner := w.runner("", answers("anything"))
	in := rollout(0, 0)
	_, err := do[activities.RunAgentResult](w.t, runner.RunAgent, in)
	require.NoError(w.t, err)

	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(testTimeout)
	env.RegisterActivityWithOptions(runner, activity.RegisterOptions{SkipInvalidStructFunctions: true}) // Close is not an activity
	env.ExecuteWorkflow(func(ctx workflow.Context) (got activities.GradeRolloutResult, err error) {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout: time.Minute,
			RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: activities.GraderTries, InitialInterval: time.Millisecond},
		})
		err = workflow.ExecuteActivity(ctx, runner.GradeRollout, activities.GradeRolloutInput{Address: at(in, 1)}).Get(ctx, &got)
		return got, err
	})
	if err := env.GetWorkflowError(); err != nil {
		return activities.GradeRolloutResult{}, err
	}
	var got activities.GradeRolloutResult
	require.NoError(w.t, env.GetWorkflowResult(&got))
	require.Nil(w.t, w.attempt(at(in, 1)).Reward)
	return got, nil
}

func TestGraderThatFailsEachTimeIsAFaultOfTheTask(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	asked := filepath.Join(w.dir, "asked")
	self, err := os.Executable()
	require.NoError(t, err)
	got, err := w.grading(self, "refuse", asked)
	require.NoError(t, err)
	require.Contains(t, got.TaskFault, "grade attempt demo/train-1/0/0/1: grade task a: grader failed")
	require.Contains(t, got.TaskFault, "I can't", "what the grader wrote is quoted")
	times, err := os.ReadFile(asked)
	require.NoError(t, err)
	require.Len(t, times, activities.GraderTries)
}

func TestGradersAbsurdRewardIsAFaultOfTheTask(t *testing.T) {
	t.Parallel()
	for reward, says := range map[string]string{
		"-1e7": "returned -1e+07, beyond grader.limit 1e+06",
		"NaN":  "no finite number",
		"Inf":  "no finite number",
	} {
		t.Run(reward, func(t *testing.T) {
			t.Parallel()
			got, err := newTestEnv(t).grading("echo", reward)
			require.NoError(t, err)
			require.Contains(t, got.TaskFault, says)
		})
	}
}

func TestGraderThatCannotBeStartedTellsNothingOfTheTask(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	program := filepath.Join(w.dir, "grader")
	require.NoError(t, os.WriteFile(program, []byte("\x7fELF\x00\x00 no program"), 0o700))
	_, err := w.grading(program)
	require.ErrorContains(t, err, "grader can't be started")
}

func TestABrokenGraderIsAClearErrorAndNoReward(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
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

func TestARewardBelowTheMinimumIsTheAgentsFailure(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]agent.Func{
		"posted":   func(_ context.Context, _ agent.Task, env agent.Env) (string, error) { return "text", env.Reward(-1) },
		"returned": answers(`{"reward": -1}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			s := w.spec()
			s.Grader, s.Agent.FailureReward = spec.Grader{Type: "agent", Minimum: new(float64)}, 0.25
			w.prepare(s)
			in := rollout(0, 0)
			got, err := do[activities.RunAgentResult](t, w.runner(w.serve(w.gateway()), f).RunAgent, in)
			require.NoError(t, err)
			require.Equal(t, record.AgentFailed, got.Outcome)
			require.InDelta(t, 0.25, *got.Reward, 0)
			require.Equal(t, "bad_reward: the reward -1 is below grader.minimum 0", w.attempt(at(in, 1)).Error)
		})
	}
}

func TestAGraderBelowTheMinimumIsAFaultOfTheTask(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	self, err := os.Executable()
	require.NoError(t, err)
	s := w.spec()
	two := 2.0 // the grader gives 1
	s.Grader = spec.Grader{Type: "command", Command: []string{self, "grade", filepath.Join(w.dir, "asked")}, Minimum: &two}
	w.prepare(s)
	runner := w.runner("", answers("anything"))
	in := rollout(0, 0)
	run, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
	require.NoError(t, err)
	got, err := do[activities.GradeRolloutResult](t, runner.GradeRollout, activities.GradeRolloutInput{Address: at(in, run.Attempt), Index: 0})
	require.NoError(t, err)
	require.Contains(t, got.TaskFault, "returned 1, below grader.minimum 2")
}
