package workflows_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// onlySpec evaluates one split, with two samples of each of its ten tasks.
func onlySpec(split string) spec.Spec {
	s := testSpec()
	s.Training.Steps = 0
	s.Evaluation = spec.Evaluation{Only: split, Samples: 2}
	return s
}

func TestARunThatOnlyEvaluatesTrainsNothing(t *testing.T) {
	t.Parallel()
	for split, rollouts := range map[string]int{"test": 30, "gate": 20} { // the test split has one more at temperature 0
		fake := &fakeActivities{score: func(int, record.Kind) float64 { return 0.5 }}
		env := fake.environment(onlySpec(split))
		env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
		var out workflows.TrainingResult
		require.NoError(t, env.GetWorkflowResult(&out))
		require.Len(t, fake.rollouts, rollouts)
		for _, r := range fake.rollouts {
			require.Equal(t, record.Kind(split), r.Rollout.Kind)
			require.Zero(t, r.Version)
		}
		require.NotNil(t, out.Evaluation)
		require.Equal(t, 20, out.Evaluation.Rollouts)
		require.InDelta(t, 0.5, out.Evaluation.Mean, 0)
		require.Zero(t, out.Steps)
		require.Empty(t, fake.trained)
		require.Empty(t, fake.batches)
		require.Len(t, fake.promoted, 1, "its references mean version 0")
		require.Len(t, fake.finished, 1)
		require.Equal(t, record.Completed, fake.finished[0].Status)
		require.Contains(t, string(fake.finished[0].Result), `"evaluation":{`)
	}
}

func TestARunThatOnlyEvaluatesFailsWithItsEvaluation(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: constantScore, ungraded: map[record.Kind]bool{record.Test: true}}
	env := fake.environment(onlySpec("test"))
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.ErrorContains(t, env.GetWorkflowError(), "of the test split can't be graded: grader exits with 3")
	require.Len(t, fake.finished, 1)
	require.Equal(t, record.Failed, fake.finished[0].Status)
}
