package testsuite_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/operator"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// retry lets a run go on and waits until it ends.
func retry(ctx context.Context, st *stack.Stack, name string) (workflows.TrainingResult, error) {
	var out workflows.TrainingResult
	run, err := st.Store.Run(ctx, name)
	if err != nil {
		return out, err
	}
	execution, err := runstate.Retrier{Client: st.Client, Namespace: client.DefaultNamespace, Store: st.Store}.Retry(ctx, run, "a test")
	if err != nil {
		return out, err
	}
	return out, st.Client.GetWorkflow(ctx, name, execution).Get(ctx, &out)
}

// trains reports whether a rollout is one to train on.
func trains(id record.RolloutID) bool { return id.Kind == record.Train || id.Kind == record.Reserve }

// failing returns an agent that fails in a step until mended is true.
func failing(step int, mended *atomic.Bool) agent.Func {
	return func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
		if !mended.Load() && trains(env.Rollout) && env.Rollout.Step == step {
			return "", errors.New("a package is missing")
		}
		return calculate(ctx, task, env)
	}
}

func TestAFailedRunThatIsRetriedEndsInTheSameWeights(t *testing.T) {
	t.Parallel()
	sampling := deciding(0, 3)
	sampling.Training.DynamicSampling = 2
	for name, s := range map[string]spec.Spec{"plain": deciding(0, 3), "lag": deciding(1, 3), "sampled": sampling, "band": choosing(spec.CurriculumBand, 0, 3)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "sampled" {
				skipKind(t, "the kind sampled shows it")
			}
			ctx := t.Context()
			dir := t.TempDir()
			var mended atomic.Bool
			agents := agent.Registry{"calculator": calculate, "failing": failing(2, &mended)}
			st := startWith(ctx, t, dir, agents)
			want := mustTrain(ctx, t, st, "undisturbed", s)
			s.Agent.Func = "failing"
			_, err := train(ctx, st, "run", s)
			require.ErrorContains(t, err, "a package is missing")
			run, err := st.Store.Run(ctx, "run")
			require.NoError(t, err)
			require.Equal(t, record.Failed, run.Status)
			require.Contains(t, run.Failure().Error, "a package is missing")

			_, err = retry(ctx, st, "run")
			require.ErrorContains(t, err, "a package is missing", "nothing was mended")
			mended.Store(true)
			got, err := retry(ctx, st, "run")
			require.NoError(t, err)
			require.Equal(t, want.Weights, got.Weights)
			require.Equal(t, want.Promoted, got.Promoted)
			require.Equal(t, want.After, got.After)
			requireWhole(ctx, t, st, "run")
			_, err = retry(ctx, st, "run")
			require.ErrorIs(t, err, runstate.ErrNotRetried, "it has completed")
			require.NoError(t, st.Close())
		})
	}
}

// A step that diverged repeats itself with the same numbers, so it goes on with others.
func TestARunThatDivergedGoesOnWithOtherNumbers(t *testing.T) {
	t.Parallel()
	skipShort(t, "other runs use the same goroutines")
	ctx := t.Context()
	st := sharedStack(t)
	s := deciding(1, 3)
	want := mustTrain(ctx, t, st, "not-diverged", s)
	s.Loss.Entropy = 1e300
	_, err := train(ctx, st, "diverged", s)
	require.ErrorContains(t, err, "lower training.optimizer.learning_rate: `fulgurite retry diverged --set training.optimizer.learning_rate=")
	_, err = retry(ctx, st, "diverged")
	require.ErrorContains(t, err, "fulgurite retry diverged --set", "a plain retry repeats the step")

	o := operator.Operator{Store: st.Store, Dial: func(context.Context) (client.Client, string, func(), error) {
		return st.Client, client.DefaultNamespace, func() {}, nil
	}}
	bad := record.Action{ID: "other-key", Run: "diverged", Name: record.ActionRetry, By: "ada", Input: record.ActionInput{Values: map[string]float64{"sampling.temperature": 2}}}
	_, err = o.Act(ctx, bad)
	require.ErrorIs(t, err, operator.ErrRefused)
	require.ErrorContains(t, err, "sampling.temperature")
	asked := record.Action{ID: "without-bonus", Run: "diverged", Name: record.ActionRetry, By: "ada", Input: record.ActionInput{Values: map[string]float64{"loss.entropy": 0}}}
	run, err := st.Store.Run(ctx, "diverged")
	require.NoError(t, err)
	retrier := runstate.Retrier{Client: st.Client, Namespace: client.DefaultNamespace, Store: st.Store}
	set := workflows.SetInput{By: asked.By, Values: asked.Input.Values}
	execution, step, err := retrier.RetryWith(ctx, run, asked.ID, set)
	require.NoError(t, err)
	require.Equal(t, 1, step)
	done, err := o.Act(ctx, asked) // the one who asked was killed before the answer
	require.NoError(t, err)
	require.Equal(t, record.ActionResult{Message: "it goes on with step 1, set and retried by ada", Step: 1, Execution: execution}, done.Result)
	var got workflows.TrainingResult
	require.NoError(t, st.Client.GetWorkflow(ctx, "diverged", execution).Get(ctx, &got))
	require.Equal(t, want.Weights, got.Weights)
	require.Equal(t, want.After, got.After)
	requireWhole(ctx, t, st, "diverged")
	acts, err := st.Store.Actions(ctx, "diverged", 1)
	require.NoError(t, err)
	require.Equal(t, done.Input.Values, acts[0].Input.Values)
	asked.ID = "once-more"
	_, err = o.Act(ctx, asked)
	require.ErrorContains(t, err, "it has completed")
}

// A run that has ended goes on for more steps. With a constant learning rate it ends in the
// weights of a run that had as many from the start.
func TestARunThatHasEndedGoesOnForMoreSteps(t *testing.T) {
	t.Parallel()
	skipShort(t, "other runs use the same goroutines")
	ctx := t.Context()
	dir := t.TempDir()
	st := start(ctx, t, dir)
	s := deciding(1, 4)
	s.Training.Optimizer.Schedule, s.Training.Optimizer.FinalFraction = spec.ScheduleConstant, 0
	want := mustTrain(ctx, t, st, "undisturbed", s)
	s.Training.Steps = 2
	first := mustTrain(ctx, t, st, "run", s)
	require.Equal(t, 2, first.Steps)
	require.NotEqual(t, want.Weights, first.Weights)

	o := operator.Operator{Store: st.Store, Dial: func(context.Context) (client.Client, string, func(), error) {
		return st.Client, client.DefaultNamespace, func() {}, nil
	}}
	more := func(id string, steps float64) (record.Action, error) {
		return o.Act(ctx, record.Action{ID: id, Run: "run", Name: record.ActionRetry, By: "ada", Input: record.ActionInput{Values: map[string]float64{spec.KeySteps: steps}}})
	}
	for id, c := range map[string]struct {
		steps float64
		why   string
	}{"fewer-steps": {1, "its last finished step is 2, and training.steps 1 is not more"}, "as-many-steps": {2, "is not more"}, "half-a-step": {2.5, "give a whole number"}} {
		_, err := more(id, c.steps)
		require.ErrorIs(t, err, operator.ErrRefused)
		require.ErrorContains(t, err, c.why)
	}
	_, err := retry(ctx, st, "run")
	require.ErrorContains(t, err, " --steps N` lets it go on to step N")

	done, err := more("two-more", 4)
	require.NoError(t, err)
	require.Equal(t, 3, done.Result.Step)
	again, err := more("two-more", 4) // the one who asked was killed before the answer
	require.NoError(t, err)
	require.Equal(t, done.Result, again.Result)
	var got workflows.TrainingResult
	require.NoError(t, st.Client.GetWorkflow(ctx, "run", done.Result.Execution).Get(ctx, &got))
	require.Equal(t, []any{want.Weights, 4}, []any{got.Weights, got.Steps})
	requireWhole(ctx, t, st, "run")
	run, err := st.Store.Run(ctx, "run")
	require.NoError(t, err)
	require.Equal(t, record.Completed, run.Status)
	require.NoError(t, st.Close())
}

func TestARunThatFailsInItsPreparationIsRetried(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := sharedStack(t)
	s := spec.Spec{
		Agent: spec.Agent{Func: "calculator"}, Grader: spec.Grader{Type: "exact"}, Training: spec.Training{Steps: 1, TasksPerStep: 1, SamplesPerTask: 2},
		Tasks: spec.Tasks{Train: filepath.Join(t.TempDir(), "tasks.jsonl")},
	}.WithDefaults()
	_, err := train(ctx, st, "without-tasks", s)
	require.ErrorContains(t, err, "tasks.train")
	run, err := st.Store.Run(ctx, "without-tasks")
	require.NoError(t, err)
	require.Equal(t, record.Refused, run.Status)
	require.NoError(t, os.WriteFile(s.Tasks.Train, []byte(`{"id":"a","input":"1+2","answer":"3"}`+"\n"), 0o600))
	got, err := retry(ctx, st, "without-tasks")
	require.NoError(t, err)
	require.Equal(t, 1, got.Steps)
	requireWhole(ctx, t, st, "without-tasks")
}

func TestATerminatedRunIsClosedAndGoesOnWhenRetried(t *testing.T) {
	t.Parallel()
	skipShort(t, "other runs use the same goroutines")
	ctx := t.Context()
	g := newGated(2)
	st, err := stack.Start(ctx, stack.Options{
		Dir: t.TempDir(), Agents: agent.Registry{"calculator": calculate, "gated": g.solve}, Log: zap.NewNop(), Reconcile: 50 * time.Millisecond,
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, st.Close()) }()
	s := patient(deciding(1, 2))
	want := mustTrain(ctx, t, st, "undisturbed", s)
	s.Agent.Func = "gated"
	_ = inBackground(ctx, st, "run", s)
	<-g.reached
	require.NoError(t, st.Client.TerminateWorkflow(ctx, "run", "", "enough"))
	require.Eventually(t, func() bool {
		run, err := st.Store.Run(ctx, "run")
		return err == nil && run.Status == record.Terminated
	}, time.Minute, 10*time.Millisecond)
	run, err := st.Store.Run(ctx, "run")
	require.NoError(t, err)
	require.Contains(t, run.Failure().Error, ": enough")
	attempts, err := st.Store.Attempts(ctx, "run", record.Train, 2)
	require.NoError(t, err)
	require.NotEmpty(t, attempts)
	for _, a := range attempts {
		require.NotEqual(t, record.OutcomeRunning, a.Outcome, "%s goes on", a.Address)
	}
	close(g.open)
	got, err := retry(ctx, st, "run")
	require.NoError(t, err)
	require.Equal(t, want.Weights, got.Weights)
	requireWhole(ctx, t, st, "run")
}

func TestARetryThatIsKilledGoesOn(t *testing.T) {
	t.Parallel()
	skipKind(t, "runs are killed, and runs are retried, by other tests")
	ctx := t.Context()
	want := mustTrain(ctx, t, sharedStack(t), "retry-undisturbed", victimSpec(""))

	dir := t.TempDir()
	st := startWith(ctx, t, dir, agent.Registry{"calculator": func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
		if env.Rollout.Step == 2 && trains(env.Rollout) {
			return "", errors.New("a package is missing")
		}
		return calculate(ctx, task, env)
	}})
	_, err := train(ctx, st, "run", victimSpec(""))
	require.Error(t, err)
	require.NoError(t, st.Close())

	process := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
	process.Env = append(os.Environ(), victimVariable+"="+dir, kindVariable+"=retry")
	process.Stderr = os.Stderr
	require.NoError(t, process.Start())
	awaitProgress(ctx, t, dir, 2)
	require.NoError(t, process.Process.Signal(syscall.SIGKILL))
	require.Error(t, process.Wait())

	st = start(ctx, t, dir)
	defer func() { require.NoError(t, st.Close()) }()
	var got workflows.TrainingResult
	require.NoError(t, st.Client.GetWorkflow(ctx, "run", "").Get(ctx, &got))
	require.Equal(t, want.Weights, got.Weights)
	requireWhole(ctx, t, st, "run")
}
