package workflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/stream"
	"github.com/fulgurite/fulgurite/workflows"
)

func input(t *testing.T) workflows.TrainingInput {
	t.Helper()
	data, err := json.Marshal(testSpec())
	require.NoError(t, err)
	return workflows.TrainingInput{Spec: data}
}

func TestARunTrainsEachVersionFromTheOneBefore(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: func(version int, _ record.Kind) float64 { return float64(version) }}
	env := fake.environment(testSpec())
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	var out workflows.TrainingResult
	require.NoError(t, env.GetWorkflowResult(&out))

	require.Equal(t, 4, out.Steps)
	require.Equal(t, 4, out.Promoted)
	require.Equal(t, "sha256:4", out.Weights)
	require.InDelta(t, 0, out.Before.Mean, 0)
	require.InDelta(t, 4, out.After.Mean, 0)
	for i, in := range fake.trained {
		require.Equal(t, activities.TrainStepInput{Run: "run", Policy: "main", Step: i + 1, Batch: fmt.Sprintf("sha256:batch%d", i+1)}, in)
	}
	for _, in := range fake.rollouts {
		if in.Rollout.Kind == record.Train {
			require.Equal(t, in.Rollout.Step-1, in.Version, "rollouts of step s sample from version s-1")
		} else {
			require.Equal(t, in.Rollout.Step, in.Version)
		}
	}
	require.Len(t, fake.finished, 1)
	require.Equal(t, record.Completed, fake.finished[0].Status)
}

func TestTasksComeFromTheSeededStreamWithoutGapOrRepeat(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: func(int, record.Kind) float64 { return 0 }}
	env := fake.environment(testSpec())
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())

	seen := map[int]map[int]int{} // task → sample → index
	for _, in := range fake.rollouts {
		if in.Rollout.Kind != record.Train {
			continue
		}
		if seen[in.Rollout.Task] == nil {
			seen[in.Rollout.Task] = map[int]int{}
		}
		require.NotContains(t, seen[in.Rollout.Task], in.Rollout.Sample)
		seen[in.Rollout.Task][in.Rollout.Sample] = in.Index
	}
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, slices.Sorted(maps.Keys(seen)))
	for task, samples := range seen {
		want, _ := stream.At(testSpec().Seed, 50, task)
		require.Equal(t, map[int]int{0: want, 1: want}, samples)
	}
	for step, b := range fake.batches {
		require.Equal(t, step*3, b.Groups[0].Task, "groups arrive in task order, however the children ended")
		require.Equal(t, step*3+2, b.Groups[2].Task)
	}
}

func TestOnlyABetterVersionIsPromotedAndARefusedOneIsStillTheParent(t *testing.T) {
	t.Parallel()
	gate := map[int]float64{0: 0.5, 2: 0.7, 4: 0.6}
	fake := &fakeActivities{score: func(version int, kind record.Kind) float64 { return gate[version] }}
	env := fake.environment(testSpec())
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	var out workflows.TrainingResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, 2, out.Promoted)
	require.Len(t, fake.promoted, 2)
	require.Equal(t, -1, fake.promoted[0].Previous)
	require.Equal(t, 0, fake.promoted[1].Previous)
	require.Equal(t, model.Decision{Candidate: 2, Promoted: 0, Reward: 0.7, Baseline: 0.5, Accept: true}, round(fake.promoted[1].Decision))
	require.Len(t, fake.trained, 4, "a refused version is trained on")
}

func round(d model.Decision) model.Decision {
	d.Reward, d.Baseline = float64(int(d.Reward*1000+0.5))/1000, float64(int(d.Baseline*1000+0.5))/1000
	return d
}

func TestAMarginRefusesASmallGain(t *testing.T) {
	t.Parallel()
	s := testSpec()
	s.Promotion.Margin = 0.3
	fake := &fakeActivities{score: func(version int, _ record.Kind) float64 { return 0.5 + float64(version)*0.05 }}
	env := fake.environment(s)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	var out workflows.TrainingResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Zero(t, out.Promoted)
	require.Equal(t, out.Before, out.After)
}

func TestContinueAsNewCarriesTheWholeState(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: func(version int, _ record.Kind) float64 { return float64(version) }}
	in := input(t)
	var last workflows.TrainingResult
	executions := 0
	for ; executions < 20; executions++ {
		env := fake.environment(testSpec())
		suggestAfterOneStep(env)
		env.ExecuteWorkflow(workflows.TrainingWorkflow, in)
		err := env.GetWorkflowError()
		var again *workflow.ContinueAsNewError
		if !errors.As(err, &again) {
			require.NoError(t, err)
			require.NoError(t, env.GetWorkflowResult(&last))
			break
		}
		in = workflows.TrainingInput{}
		require.NoError(t, json.Unmarshal(again.Input.Payloads[0].Data, &in))
		require.NotNil(t, in.Resume)
	}
	require.Positive(t, executions, "no execution continued as new")
	require.Equal(t, 4, last.Steps)
	require.InDelta(t, 4, last.After.Mean, 0)
	require.Len(t, fake.trained, 4, "no step is trained twice")
	require.Equal(t, []int{1, 2, 3, 4}, []int{fake.trained[0].Step, fake.trained[1].Step, fake.trained[2].Step, fake.trained[3].Step})
}

// suggestAfterOneStep suggests continue-as-new as soon as one step was trained.
func suggestAfterOneStep(env *testsuite.TestWorkflowEnvironment) {
	env.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) {
		if info.ActivityType.Name == "TrainStep" {
			env.SetContinueAsNewSuggested(true)
		}
	})
}

func TestAFailureThatNothingCanMendEndsTheRunAndItsRecord(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{agentError: temporal.NewNonRetryableApplicationError("no such agent", activities.ErrTypeInvalid, nil)}
	env := fake.environment(testSpec())
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.ErrorContains(t, env.GetWorkflowError(), "no such agent")
	require.Len(t, fake.finished, 1)
	require.Equal(t, record.Failed, fake.finished[0].Status)
	require.Contains(t, string(fake.finished[0].Result), "no such agent")
	require.Empty(t, fake.trained)
}

func TestACancelledRunIsRecordedAsCancelled(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: func(int, record.Kind) float64 { return 0 }}
	env := fake.environment(testSpec())
	env.RegisterDelayedCallback(env.CancelWorkflow, 0)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.Error(t, env.GetWorkflowError())
	require.Len(t, fake.finished, 1)
	require.Equal(t, record.Cancelled, fake.finished[0].Status)
}

func TestProgressAnswersWhileARunIsUnderWay(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: func(version int, _ record.Kind) float64 { return float64(version) }}
	env := fake.environment(testSpec())
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	value, err := env.QueryWorkflow(workflows.QueryProgress)
	require.NoError(t, err)
	var p workflows.Progress
	require.NoError(t, value.Get(&p))
	require.Equal(t, workflows.PhaseFinished, p.Phase)
	require.Equal(t, 4, p.Step)
	require.Len(t, p.Curve, 4)
	require.NotNil(t, p.Curve[1].Gate)
	require.Nil(t, p.Curve[0].Gate)
	require.Equal(t, 24*2, p.Calls)
}

func TestAnEvaluationReportsMeanErrorAndGreedyMean(t *testing.T) {
	t.Parallel()
	env := quiet().NewTestWorkflowEnvironment()
	var r *activities.Runner
	var c *activities.Coordinator
	env.OnActivity(r.RunAgent, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.RunAgentInput) (activities.RunAgentResult, error) {
		reward := float64(in.Rollout.Task % 2)
		if in.Greedy {
			reward = 1
		}
		return activities.RunAgentResult{Attempt: 1, Outcome: record.OutcomeCompleted, Reward: &reward}, nil
	})
	env.OnActivity(c.RecordEvaluation, mock.Anything, mock.Anything).Return(nil)
	env.ExecuteWorkflow(workflows.EvaluationWorkflow, workflows.EvaluationInput{
		Run: "run", Kind: record.Test, Policy: "main", Version: 3, Tasks: 4, Samples: 2, Greedy: true, Agent: spec.Agent{Queue: "q"},
	})
	var e activities.Evaluation
	require.NoError(t, env.GetWorkflowResult(&e))
	require.Equal(t, 8, e.Rollouts)
	require.InDelta(t, 0.5, e.Mean, 1e-12)
	require.InDelta(t, 0.5345/2.8284, e.StdError, 1e-3) // sqrt(2/7) over sqrt(8)
	require.InDelta(t, 1, *e.Greedy, 0)
}

func TestTheInputOfARunIsTheSpecItself(t *testing.T) {
	t.Parallel()
	in := workflows.TrainingInput{Spec: json.RawMessage(`{"name":"x"}`)}
	data, err := json.Marshal(in)
	require.NoError(t, err)
	require.JSONEq(t, `{"name":"x"}`, string(data))
	var back workflows.TrainingInput
	require.NoError(t, json.Unmarshal(data, &back))
	require.Equal(t, in, back)
}

func TestALargeEvaluationContinuesAsNewAndCountsEachRolloutOnce(t *testing.T) {
	t.Parallel()
	in := workflows.EvaluationInput{Run: "run", Kind: record.Gate, Policy: "main", Version: 3, Tasks: 1100, Samples: 1, Agent: spec.Agent{Queue: "q"}}
	var mu sync.Mutex
	seen := map[int]int{}
	for executions := 1; ; executions++ {
		env := quiet().NewTestWorkflowEnvironment()
		env.SetTestTimeout(2 * time.Minute)
		var r *activities.Runner
		var c *activities.Coordinator
		env.OnActivity(r.RunAgent, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.RunAgentInput) (activities.RunAgentResult, error) {
			mu.Lock()
			seen[in.Rollout.Task]++
			mu.Unlock()
			reward := float64(in.Rollout.Task % 2)
			return activities.RunAgentResult{Attempt: 1, Outcome: record.OutcomeCompleted, Reward: &reward}, nil
		})
		env.OnActivity(c.RecordEvaluation, mock.Anything, mock.Anything).Return(nil)
		env.ExecuteWorkflow(workflows.EvaluationWorkflow, in)
		var again *workflow.ContinueAsNewError
		if errors.As(env.GetWorkflowError(), &again) {
			in = workflows.EvaluationInput{}
			require.NoError(t, json.Unmarshal(again.Input.Payloads[0].Data, &in))
			continue
		}
		var e activities.Evaluation
		require.NoError(t, env.GetWorkflowResult(&e))
		require.Equal(t, 2, executions)
		require.Equal(t, 1100, e.Rollouts)
		require.InDelta(t, 0.5, e.Mean, 1e-12)
		break
	}
	require.Len(t, seen, 1100)
	for task, n := range seen {
		require.Equal(t, 1, n, "task %d", task)
	}
}
