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
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/workflows"
)

// criticWorld is a world whose spec has a critic, and what was asked of the
// trainer, in order.
type criticWorld struct {
	*world
	scored   []activities.ScoreBatchInput
	learned  []activities.TrainCriticInput
	order    []string
	failures int // of the critic's training, to come
}

func newCriticWorld() (*criticWorld, spec.Spec) {
	w := &criticWorld{world: &world{score: func(int, trace.Kind) float64 { return 0 }}}
	w.trainStep = func(in activities.TrainStepInput) { w.did("policy", in.Step) }
	w.recordStep = func(in activities.RecordStepInput) { w.did("record", in.Step) }
	s := testSpec()
	s.Credit = spec.Credit{Tokens: credit.GAE}
	return w, s.WithDefaults()
}

func (w *criticWorld) did(what string, step int) {
	w.note(func() { w.order = append(w.order, fmt.Sprint(what, " ", step)) })
}

func (w *criticWorld) environment(s spec.Spec) *testsuite.TestWorkflowEnvironment {
	env := w.world.environment(s)
	var t *activities.Trainer
	env.OnActivity(t.ScoreBatch, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.ScoreBatchInput) (activities.ScoreBatchResult, error) {
		w.did("values", in.Step)
		w.note(func() { w.scored = append(w.scored, in) })
		return activities.ScoreBatchResult{Values: fmt.Sprintf("sha256:values%d", in.Step)}, nil
	})
	env.OnActivity(t.TrainCritic, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.TrainCriticInput) (activities.VersionResult, error) {
		if w.failures > 0 {
			w.note(func() { w.failures-- })
			return activities.VersionResult{}, errors.New("the store is away")
		}
		w.did("critic", in.Step)
		w.note(func() { w.learned = append(w.learned, in) })
		return activities.VersionResult{Number: in.Step, Metrics: map[string]float64{"critic/loss": float64(in.Step)}}, nil
	})
	return env
}

func TestACriticScoresAStepBeforeItsCreditAndLearnsAfterIt(t *testing.T) {
	t.Parallel()
	for _, lag := range []int{0, 2} {
		w, s := newCriticWorld()
		s.Training.Lag, w.failures = lag, 2
		env := w.environment(s)
		env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
		require.NoError(t, env.GetWorkflowError())
		var order []string
		for step := 1; step <= 4; step++ {
			order = append(order, fmt.Sprint("values ", step), fmt.Sprint("policy ", step), fmt.Sprint("critic ", step), fmt.Sprint("record ", step))
			batch := w.batches[step-1]
			require.Equal(t, fmt.Sprintf("sha256:values%d", step), batch.Values)
			require.Equal(t, activities.ScoreBatchInput{Run: "run", Step: step, Groups: batch.Groups}, w.scored[step-1])
			require.Equal(t, activities.TrainCriticInput{Run: "run", Policy: "main", Step: step, Batch: fmt.Sprintf("sha256:batch%d", step)}, w.learned[step-1])
			require.InDelta(t, step, w.recorded[step-1].Metrics["critic/loss"], 0)
			require.InDelta(t, 1, w.recorded[step-1].Metrics["reward/mean"], 0)
		}
		require.Equal(t, order, w.order, "lag %d", lag)
	}
}

func TestWithoutACriticNothingIsAskedOfOne(t *testing.T) {
	t.Parallel()
	w, _ := newCriticWorld()
	env := w.environment(testSpec())
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Empty(t, w.scored)
	require.Empty(t, w.learned)
	for _, batch := range w.batches {
		require.Empty(t, batch.Values)
	}
}
