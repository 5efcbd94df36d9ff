package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// updateCallback is how an Update ended.
type updateCallback struct {
	t        *testing.T
	rejected error
	failed   error
	result   workflows.UpdateResult
}

func (a *updateCallback) Accept()          {}
func (a *updateCallback) Reject(err error) { a.rejected = err }
func (a *updateCallback) Complete(success any, err error) {
	a.failed = err
	if r, ok := success.(workflows.UpdateResult); ok {
		a.result = r
	}
}

// updateDuring sends an Update while the update of a step is under way.
func updateDuring(t *testing.T, fake *fakeActivities, env *testsuite.TestWorkflowEnvironment, step int, name string, in any) *updateCallback {
	t.Helper()
	a := &updateCallback{t: t}
	before := fake.trainStep
	fake.trainStep = func(i activities.TrainStepInput) {
		if before != nil {
			before(i)
		}
		if i.Step == step {
			env.UpdateWorkflow(name, name, a, in)
		}
	}
	return a
}

func TestStopEndsTheRunAfterTheStepsThatHaveBegun(t *testing.T) {
	t.Parallel()
	for lag, want := range []int{2, 3, 4} {
		s := testSpec()
		s.Training.Lag, s.Training.Steps = lag, 9
		fake := &fakeActivities{score: func(version int, _ record.Kind) float64 { return float64(version) }}
		env := fake.environment(s)
		a := updateDuring(t, fake, env, 2, workflows.UpdateStop, workflows.ControlInput{By: "ada", Reason: "it is flat"})
		env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
		var out workflows.TrainingResult
		require.NoError(t, env.GetWorkflowResult(&out))
		require.NoError(t, a.rejected)
		require.Equal(t, want, a.result.Step)
		require.Equal(t, want, out.Steps)
		require.Equal(t, &record.Stop{By: "ada", Reason: "it is flat", After: want, Of: 9}, out.Stopped)
		require.Equal(t, record.Stopped, fake.finished[0].Status)
		require.Equal(t, want, out.Promoted, "the last version is evaluated as always")
		require.InDelta(t, float64(want), out.After.Mean, 0)
	}
}

func TestABudgetThatIsUsedUpEndsTheRunAfterTheStepsThatHaveBegun(t *testing.T) {
	t.Parallel()
	for lag, want := range []int{2, 3, 4} {
		s := testSpec()
		s.Training.Lag, s.Training.Steps, s.Budget = lag, 9, &spec.Budget{Calls: 10}
		fake := &fakeActivities{score: func(version int, _ record.Kind) float64 { return float64(version) }}
		var trained, asked int
		fake.trainStep = func(i activities.TrainStepInput) { fake.locked(func() { trained = i.Step }) }
		fake.usedUp = func(b spec.Budget) (why string) {
			fake.locked(func() {
				asked++
				if trained == 2 && b.Calls == 10 {
					why = "budget.calls is used up, 12 of 10"
				}
			})
			return why
		}
		env := fake.environment(s)
		a := updateDuring(t, fake, env, 1, workflows.UpdateSet, workflows.SetInput{By: "ada", Values: map[string]float64{spec.KeyBudgetTokens: 77}})
		env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
		var out workflows.TrainingResult
		require.NoError(t, env.GetWorkflowResult(&out))
		require.NoError(t, a.rejected)
		require.Equal(t, want, out.Steps)
		require.Equal(t, &record.Stop{By: "the budget", Reason: "budget.calls is used up, 12 of 10", After: want, Of: 9}, out.Stopped)
		require.Equal(t, record.Stopped, fake.finished[0].Status)
		require.Equal(t, want, out.Promoted, "the last version is evaluated as always")
		require.Equal(t, want+1, asked, "once before each step that could have begun")
	}
}

// Temporal makes the Updates after the place to which a run is reset again, at once. What was
// asked for after step 3 is then asked for before steps that are on record.
func TestAStopThatComesAgainEndsAPausedRunAfterTheStepsOnRecord(t *testing.T) {
	t.Parallel()
	s := testSpec()
	s.Training.Steps = 9
	fake := &fakeActivities{score: constantScore, onRecord: 3}
	env := fake.environment(s)
	var set, pause, stop updateCallback
	env.RegisterDelayedCallback(func() {
		env.UpdateWorkflow(workflows.UpdateSet, "set", &set, workflows.SetInput{By: "ada", Values: map[string]float64{"training.optimizer.learning_rate": 0.5}})
		env.UpdateWorkflow(workflows.UpdatePause, "pause", &pause, workflows.ControlInput{By: "ada"})
		env.UpdateWorkflow(workflows.UpdateStop, "stop", &stop, workflows.ControlInput{By: "ada"})
	}, 0)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	var out workflows.TrainingResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.NoError(t, set.failed)
	require.NoError(t, pause.failed)
	require.Equal(t, 3, stop.result.Step)
	require.Equal(t, 3, out.Steps)
	require.InDelta(t, 0.5, fake.trained[2].Set["training.optimizer.learning_rate"], 0)
}

func TestABudgetThatWasUsedUpBeforeAResetEndsTheRunAfterTheStepsOnRecord(t *testing.T) {
	t.Parallel()
	s := testSpec()
	s.Training.Steps, s.Budget = 9, &spec.Budget{Calls: 10}
	fake := &fakeActivities{score: constantScore, onRecord: 3, usedUp: func(spec.Budget) string { return "budget.calls is used up, 12 of 10" }}
	env := fake.environment(s)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	var out workflows.TrainingResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, 3, out.Steps)
	require.Equal(t, 3, out.Stopped.After)
}

func TestARunStoppedLateStillEvaluatesItsLastVersion(t *testing.T) {
	t.Parallel()
	s := testSpec()
	s.Training.Steps = 9
	fake := &fakeActivities{score: func(version int, _ record.Kind) float64 { return float64(version) }}
	env := fake.environment(s)
	var a updateCallback
	fake.recordStep = func(in activities.RecordStepInput) {
		if in.Step == 3 { // evaluations are due after every second step
			env.UpdateWorkflow(workflows.UpdateStop, "stop", &a, workflows.ControlInput{By: "ada"})
		}
	}
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	var out workflows.TrainingResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, 3, a.result.Step)
	require.Equal(t, 3, out.Steps)
	require.Equal(t, 3, out.Promoted)
}

func TestPauseHoldsTheNextStepUntilResume(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: constantScore}
	env := fake.environment(testSpec())
	paused := updateDuring(t, fake, env, 2, workflows.UpdatePause, workflows.ControlInput{By: "ada"})
	var resumed, twice updateCallback
	env.RegisterDelayedCallback(func() {
		require.Len(t, fake.trained, 2, "no step begins while the run is paused")
		value, err := env.QueryWorkflow(workflows.QueryProgress)
		require.NoError(t, err)
		var p workflows.Progress
		require.NoError(t, value.Get(&p))
		require.Equal(t, workflows.PhasePaused, p.Phase)
		require.True(t, p.Paused)
		env.UpdateWorkflow(workflows.UpdatePause, "again", &twice, workflows.ControlInput{By: "ada"})
		env.UpdateWorkflow(workflows.UpdateResume, "go", &resumed, workflows.ControlInput{By: "ada"})
	}, time.Hour)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, 2, paused.result.Step)
	require.ErrorContains(t, twice.rejected, "paused already")
	require.Equal(t, 3, resumed.result.Step)
	require.Len(t, fake.trained, 4)
}

func TestSetCountsFromTheFirstStepThatHasNotBegun(t *testing.T) {
	t.Parallel()
	for lag := range 3 {
		s := testSpec()
		s.Training.Lag, s.Training.Steps = lag, 6
		fake := &fakeActivities{score: constantScore}
		env := fake.environment(s)
		values := map[string]float64{"training.optimizer.learning_rate": 1e-4}
		a := updateDuring(t, fake, env, 2, workflows.UpdateSet, workflows.SetInput{By: "ada", Values: values})
		env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
		require.NoError(t, env.GetWorkflowError())
		require.Equal(t, 3+lag, a.result.Step)
		for _, in := range fake.trained {
			if in.Step >= 3+lag {
				require.Equal(t, values, in.Set, "step %d", in.Step)
			} else {
				require.Nil(t, in.Set, "step %d", in.Step)
			}
		}
	}
}

func TestImpossibleUpdatesAreRefusedBeforeTheyAreRecorded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		update string
		in     any
		want   string
	}{
		"unknown key":       {workflows.UpdateSet, workflows.SetInput{Values: map[string]float64{"lr": 1}}, "lr: can't be set while this run is under way"},
		"impossible number": {workflows.UpdateSet, workflows.SetInput{Values: map[string]float64{"loss.clip_low": -1}}, "loss.clip_low: -1 is not possible"},
		"nothing":           {workflows.UpdateSet, workflows.SetInput{}, "nothing to set"},
		"not paused":        {workflows.UpdateResume, workflows.ControlInput{}, "not paused"},
		"nobody waits":      {workflows.UpdateApprove, workflows.VerdictInput{By: "ada"}, "no candidate waits"},
	} {
		fake := &fakeActivities{score: constantScore}
		env := fake.environment(testSpec())
		a := updateDuring(t, fake, env, 1, c.update, c.in)
		env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
		require.NoError(t, env.GetWorkflowError(), name)
		require.ErrorContains(t, a.rejected, c.want, name)
	}
}
