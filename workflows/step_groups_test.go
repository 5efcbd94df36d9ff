package workflows_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/tasks/stream"
	"github.com/fulgurite/fulgurite/workflows"
)

// constantScore is an agent whose reward does not depend on the version.
func constantScore(int, record.Kind) float64 { return 0.5 }

func TestRolloutsSampleFromTheVersionThatTheLagSays(t *testing.T) {
	t.Parallel()
	for lag := range 3 {
		s := testSpec()
		s.Training.Lag, s.Training.Steps = lag, 6
		fake := &fakeActivities{score: constantScore}
		env := fake.environment(s)
		env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
		require.NoError(t, env.GetWorkflowError())
		require.Len(t, fake.trained, 6)
		for _, in := range fake.rollouts {
			if in.Rollout.Kind == record.Train {
				require.Equal(t, max(0, in.Rollout.Step-1-lag), in.Version, "lag %d", lag)
			}
		}
		for i, b := range fake.batches {
			require.Equal(t, i+1, b.Step)
			require.Equal(t, i*3, b.Groups[0].Task, "each step has its own tasks, whatever the lag")
		}
	}
}

func TestRolloutsOfLaterStepsBeginWithoutTheUpdate(t *testing.T) {
	t.Parallel()
	s := testSpec()
	s.Training.Lag, s.Training.Steps = 2, 5
	begun := make([]chan struct{}, 6) // by step
	once := make([]sync.Once, 6)
	for i := range begun {
		begun[i] = make(chan struct{})
	}
	fake := &fakeActivities{score: constantScore}
	fake.attemptFault = func(in activities.RunAgentInput) string {
		if in.Rollout.Kind == record.Train {
			once[in.Rollout.Step].Do(func() { close(begun[in.Rollout.Step]) })
		}
		return ""
	}
	// No update ends before the rollouts of two steps on have begun.
	fake.trainStep = func(in activities.TrainStepInput) { <-begun[min(5, in.Step+2)] }
	env := fake.environment(s)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Len(t, fake.trained, 5)
}

func TestContinueAsNewWithALagTrainsTheSameBatches(t *testing.T) {
	t.Parallel()
	s := testSpec()
	s.Training.Lag, s.Training.Steps = 2, 6
	whole, cut := &fakeActivities{score: constantScore}, &fakeActivities{score: constantScore}
	env := whole.environment(s)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())

	in, executions := input(t), 0
	for ; executions < 20; executions++ {
		env := cut.environment(s)
		suggestAfterOneStep(env)
		env.ExecuteWorkflow(workflows.TrainingWorkflow, in)
		var again *workflow.ContinueAsNewError
		if !errors.As(env.GetWorkflowError(), &again) {
			require.NoError(t, env.GetWorkflowError())
			break
		}
		in = workflows.TrainingInput{}
		require.NoError(t, json.Unmarshal(again.Input.Payloads[0].Data, &in))
	}
	require.Positive(t, executions)
	require.Equal(t, whole.batches, cut.batches)
	require.Equal(t, whole.trained, cut.trained)
	versions := func(fake *fakeActivities) map[string]int {
		out := map[string]int{}
		for _, r := range fake.rollouts {
			out[r.Rollout.String()] = r.Version
		}
		return out
	}
	require.Equal(t, versions(whole), versions(cut), "no rollout samples from another version because of a continue-as-new")
}

func TestAQuarantinedGroupIsReplacedFromTheReserve(t *testing.T) {
	t.Parallel()
	for lag := range 3 {
		s := testSpec()
		s.Training.Lag = lag
		bad, _ := stream.At(s.Seed, 50, 1)        // a task of step 1
		worse := stream.Reserve(s.Seed, 50, 1, 0) // and the first task that replaces it
		require.NotEqual(t, bad, worse)
		fake := &fakeActivities{score: constantScore, taskFaults: map[int]string{bad: "no input", worse: "no input either"}}
		env := fake.environment(s)
		env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
		require.NoError(t, env.GetWorkflowError())

		first := fake.batches[0]
		require.Equal(t, []activities.Group{
			{Task: 0, Attempts: []int{1, 1}, Rewards: []float64{0.5, 0.5}},
			{Kind: record.Reserve, Task: 1, Attempts: []int{1, 1}, Rewards: []float64{0.5, 0.5}},
			{Task: 2, Attempts: []int{1, 1}, Rewards: []float64{0.5, 0.5}},
		}, first.Groups)
		require.Equal(t, 3, fake.batches[1].Groups[0].Task, "the normal stream does not shift")
		require.Equal(t, activities.RecordQuarantineInput{Run: "run", Policy: "main", Step: 1, Task: 1, Index: bad, Reason: "no input"}, fake.quarantined[0])
		require.Equal(t, activities.RecordQuarantineInput{Run: "run", Policy: "main", Step: 1, Task: 0, Index: worse, Reserve: true, Reason: "no input either"}, fake.quarantined[1])
	}
}

// Whether a later step knows of a quarantine must depend on its number alone, or
// a run that was held up would train on other tasks.
func TestAQuarantinedTaskIsLeftOutByStepsAfterTheLag(t *testing.T) {
	t.Parallel()
	for lag := range 3 {
		s := testSpec()
		// 3 tasks a step of a split of 3: each step has every task.
		s.Training.Lag, s.Training.Steps = lag, 5
		fake := &fakeActivities{score: constantScore}
		fake.taskFaults = map[int]string{0: "broken"}
		env := fake.environmentOf(s, 3)
		env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
		require.NoError(t, env.GetWorkflowError())
		tried := map[int]bool{}
		for _, r := range fake.rollouts {
			if r.Index == 0 && (r.Rollout.Kind == record.Train) {
				tried[r.Rollout.Step] = true
			}
		}
		for step := 1; step <= 5; step++ {
			require.Equal(t, step <= 1+lag, tried[step], "lag %d, step %d", lag, step)
		}
		for _, b := range fake.batches {
			require.Len(t, b.Groups, 3)
		}
		require.Greater(t, len(fake.quarantined), 1, "it is on record for every step that met it")
		value, err := env.QueryWorkflow(workflows.QueryProgress)
		require.NoError(t, err)
		var p workflows.Progress
		require.NoError(t, value.Get(&p))
		require.Equal(t, 1, p.Quarantined, "lag %d: one task, however often it was met", lag)
	}
}

func TestARunWhoseTasksAreAllBrokenEndsWithTheReason(t *testing.T) {
	t.Parallel()
	taskFaults := map[int]string{}
	for i := range 50 {
		taskFaults[i] = "no calculator installed"
	}
	fake := &fakeActivities{score: constantScore, taskFaults: taskFaults}
	env := fake.environment(testSpec())
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.ErrorContains(t, env.GetWorkflowError(), "step 1: 15 draws in a row gave quarantined tasks, the last because: no calculator installed")
	require.Empty(t, fake.trained, "nothing is trained in part")
}

func TestATaskThatCannotBeGradedIsQuarantined(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: constantScore, ungraded: map[record.Kind]bool{record.Train: true}}
	env := fake.environment(testSpec())
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Len(t, fake.trained, 4)
	for _, b := range fake.batches {
		for _, g := range b.Groups {
			require.Equal(t, record.Reserve, g.Kind)
		}
	}
	require.Equal(t, "grader exits with 3", fake.quarantined[0].Reason)
}

func TestAnAgentThatFailsEarlyInSomeSamplesIsThePolicysAffair(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: func(int, record.Kind) float64 { return 0 }}
	env := fake.environment(testSpec())
	fake.attemptFault = func(in activities.RunAgentInput) string {
		if in.Rollout.Kind == record.Train && in.Rollout.Sample == 0 {
			return "failed before its first model call"
		}
		return ""
	}
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Empty(t, fake.quarantined)
	kinds := map[record.Kind]bool{}
	for _, b := range fake.batches {
		for _, g := range b.Groups {
			kinds[g.Kind] = true
		}
	}
	require.Equal(t, []record.Kind{""}, slices.Collect(maps.Keys(kinds)))
}
