package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// fakeCriticActivities are fakeActivities for a spec with a critic. They record what was asked
// of the trainer, in order.
type fakeCriticActivities struct {
	*fakeActivities
	scored   []activities.ScoreBatchInput
	learned  []activities.TrainCriticInput
	order    []string
	failures int // how many trainings of the critic still fail
}

func newFakeCriticActivities() (*fakeCriticActivities, spec.Spec) {
	fake := &fakeCriticActivities{fakeActivities: &fakeActivities{score: func(int, record.Kind) float64 { return 0 }}}
	fake.trainStep = func(in activities.TrainStepInput) { fake.log("policy", in.Step) }
	fake.recordStep = func(in activities.RecordStepInput) { fake.log("record", in.Step) }
	s := testSpec()
	s.Credit = spec.Credit{Tokens: credit.GAE}
	return fake, s.WithDefaults()
}

func (fake *fakeCriticActivities) log(what string, step int) {
	fake.locked(func() { fake.order = append(fake.order, fmt.Sprint(what, " ", step)) })
}

func (fake *fakeCriticActivities) environment(s spec.Spec) *testsuite.TestWorkflowEnvironment {
	env := fake.fakeActivities.environment(s)
	var t *activities.Trainer
	env.OnActivity(t.ScoreBatch, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.ScoreBatchInput) (activities.ScoreBatchResult, error) {
		fake.log("values", in.Step)
		fake.locked(func() { fake.scored = append(fake.scored, in) })
		return activities.ScoreBatchResult{Values: fmt.Sprintf("sha256:values%d", in.Step)}, nil
	})
	env.OnActivity(t.TrainCritic, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.TrainCriticInput) (activities.VersionResult, error) {
		if fake.failures > 0 {
			fake.locked(func() { fake.failures-- })
			return activities.VersionResult{}, errors.New("the store is away")
		}
		fake.log("critic", in.Step)
		fake.locked(func() { fake.learned = append(fake.learned, in) })
		return activities.VersionResult{Number: in.Step, Metrics: map[string]float64{"critic/loss": float64(in.Step)}}, nil
	})
	return env
}

func TestACriticScoresAStepBeforeItsCreditAndLearnsAfterIt(t *testing.T) {
	t.Parallel()
	for _, lag := range []int{0, 2} {
		fake, s := newFakeCriticActivities()
		s.Training.Lag, fake.failures = lag, 2
		env := fake.environment(s)
		env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
		require.NoError(t, env.GetWorkflowError())
		var order []string
		for step := 1; step <= 4; step++ {
			order = append(order, fmt.Sprint("values ", step), fmt.Sprint("policy ", step), fmt.Sprint("critic ", step), fmt.Sprint("record ", step))
			batch := fake.batches[step-1]
			require.Equal(t, fmt.Sprintf("sha256:values%d", step), batch.Values)
			require.Equal(t, activities.ScoreBatchInput{Run: "run", Step: step, Groups: batch.Groups}, fake.scored[step-1])
			require.Equal(t, activities.TrainCriticInput{Run: "run", Policy: "main", Step: step, Batch: fmt.Sprintf("sha256:batch%d", step)}, fake.learned[step-1])
			require.InDelta(t, step, fake.recorded[step-1].Metrics["critic/loss"], 0)
			require.InDelta(t, 1, fake.recorded[step-1].Metrics["reward/mean"], 0)
		}
		require.Equal(t, order, fake.order, "lag %d", lag)
	}
}

func TestWithoutACriticNothingIsAskedOfOne(t *testing.T) {
	t.Parallel()
	fake, _ := newFakeCriticActivities()
	env := fake.environment(testSpec())
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Empty(t, fake.scored)
	require.Empty(t, fake.learned)
	for _, batch := range fake.batches {
		require.Empty(t, batch.Values)
	}
}

// The run's own credit needs neither a critic nor a reference: one of its policies does.
func TestTheCreditOfOnePolicyAsksForItsCriticAndItsReference(t *testing.T) {
	t.Parallel()
	fake, _ := newFakeCriticActivities()
	s := testSpec()
	s.Policies = map[string]spec.Policy{
		"a": {Match: []spec.PolicyMatch{{Agent: "a"}}, Credit: &spec.Credit{Tokens: credit.GAE, KLInReward: &spec.KL{Weight: 1}}}, "b": {},
	}
	env := fake.environment(s.WithDefaults())
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Len(t, fake.batches, 4)
	require.Len(t, fake.scored, 4)
	require.Len(t, fake.references, 4)
	require.Len(t, fake.learned, 4)
	for i, batch := range fake.batches {
		require.Equal(t, fmt.Sprintf("sha256:values%d", i+1), batch.Values)
		require.Equal(t, fmt.Sprintf("sha256:reference%d", i+1), batch.Reference)
	}

	frozen := s.Policies["a"]
	frozen.Frozen, frozen.Credit = true, nil
	s.Policies["a"] = frozen
	s.Credit = spec.Credit{}
	fake, _ = newFakeCriticActivities()
	env = fake.environment(s.WithDefaults())
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Empty(t, fake.scored)
	require.Empty(t, fake.references)
}
