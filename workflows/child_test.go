package workflows_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/tasks/stream"
	"github.com/fulgurite/fulgurite/workflows"
)

// stopGroup makes the group of task 1 of step 1 end with the given errors, one each time
// it is started. After that it ends as the others do. stopGroup returns how often it was
// started.
func stopGroup(env *testsuite.TestWorkflowEnvironment, with ...error) *int {
	var mu sync.Mutex
	started := new(int)
	env.OnWorkflow(workflows.RolloutWorkflow, mock.Anything, mock.Anything).Return(
		func(_ workflow.Context, in workflows.RolloutInput) (workflows.RolloutResult, error) {
			mu.Lock()
			defer mu.Unlock()
			if in.Kind == record.Train && in.Step == 1 && in.Task == 1 {
				if *started++; *started <= len(with) {
					return workflows.RolloutResult{}, with[*started-1]
				}
			}
			group := activities.Group{Task: in.Task, Attempts: []int{1, 1}, Rewards: []float64{0, 1}}
			if in.Kind == record.Reserve {
				group.Kind = in.Kind
			}
			return workflows.RolloutResult{Group: group}, nil
		})
	return started
}

func TestAChildThatWasTerminatedOrTimedOutIsStartedAgain(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: constantScore}
	env := fake.environment(testSpec())
	started := stopGroup(env, &temporal.TerminatedError{}, temporal.NewTimeoutError(0, nil), &temporal.TerminatedError{})
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, 4, *started)
	require.Empty(t, fake.quarantined)
}

// A person who ends a child again and again has made a decision, and the history of a
// workflow is limited.
func TestAChildThatIsTerminatedEachTimeIsGivenUp(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: constantScore}
	env := fake.environment(testSpec())
	with := make([]error, 1000)
	for i := range with {
		with[i] = &temporal.TerminatedError{}
	}
	began := env.Now()
	started := stopGroup(env, with...)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, 12, *started)
	require.Greater(t, env.Now().Sub(began), 15*time.Minute, "it is not done in haste")
	bad, _ := stream.At(testSpec().Seed, 50, 1)
	require.Equal(t, []activities.RecordQuarantineInput{{
		Run: "run", Policy: "main", Step: 1, Task: 1, Index: bad, Reason: "run/train-1/1 was terminated in Temporal, as the 11 times before",
	}}, fake.quarantined)
}

func TestAGroupThatAPersonCancelledIsQuarantined(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: constantScore}
	env := fake.environment(testSpec())
	stopGroup(env, temporal.NewCanceledError())
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Len(t, fake.quarantined, 1)
	require.Equal(t, "run/train-1/1 was cancelled in Temporal", fake.quarantined[0].Reason)
	require.Equal(t, record.Reserve, fake.batches[0].Groups[1].Kind)
}

func TestAnEvaluationThatAPersonCancelledPromotesAndReportsNothing(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: func(version int, _ record.Kind) float64 { return float64(version) }}
	env := fake.environment(testSpec())
	env.OnWorkflow(workflows.EvaluationWorkflow, mock.Anything, mock.Anything).Return(
		func(_ workflow.Context, in workflows.EvaluationInput) (activities.Evaluation, error) {
			return activities.Evaluation{}, temporal.NewCanceledError()
		})
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	var out workflows.TrainingResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, 4, out.Steps)
	require.Zero(t, out.Promoted)
	require.Nil(t, out.Before)
	require.Nil(t, out.After)
	require.Len(t, fake.decided, 2)
	for _, d := range fake.decided {
		require.Contains(t, d.Decision.Obstacle, fmt.Sprintf("run/gate-%d was cancelled in Temporal", d.Decision.Candidate))
	}
}

// The results of a doomed step can't be used, and its first error says why. In this test
// nothing but the first rollout ever ends.
func TestAfterAFatalErrorNothingElseIsStartedOrAwaited(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		kind           record.Kind
		tasks, samples int
	}{
		"step": {record.Train, 8, 2}, "group": {record.Train, 1, 300}, "evaluation": {record.Gate, 10, 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testSpec()
			s.Training.TasksPerStep, s.Training.SamplesPerTask, s.Evaluation.Samples = 8, 2, 1
			if of.kind == record.Gate {
				s.Evaluation.Samples = of.samples
			} else {
				s.Training.TasksPerStep, s.Training.SamplesPerTask = of.tasks, of.samples
			}
			ended := make(chan struct{})
			fake := &fakeActivities{score: constantScore}
			fake.fatalError = func(in activities.RunAgentInput) error {
				switch {
				case in.Rollout.Kind != of.kind:
					return nil
				case in.Rollout.Task == 0 && in.Rollout.Sample == 0:
					return temporal.NewNonRetryableApplicationError("no such agent", activities.ErrTypeInvalid, nil)
				}
				<-ended
				return temporal.NewNonRetryableApplicationError("the worker is gone", activities.ErrTypeInvalid, nil)
			}
			env := fake.environment(s)
			env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
			close(ended)
			require.ErrorContains(t, env.GetWorkflowError(), "no such agent")
			fake.locked(func() {
				made := 0
				for _, r := range fake.rollouts {
					if r.Rollout.Kind == of.kind {
						made++
					}
				}
				require.LessOrEqual(t, made, 256)
				require.Len(t, fake.finished, 1)
			})
		})
	}
}
