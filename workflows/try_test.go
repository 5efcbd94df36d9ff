package workflows_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/workflows"
)

func TestATrialRunsEachRolloutTwiceIfAsked(t *testing.T) {
	t.Parallel()
	for _, twice := range []bool{false, true} {
		w := &world{score: func(int, trace.Kind) float64 { return 1 }}
		env := w.environment(testSpec())
		env.RegisterWorkflow(workflows.TryWorkflow)
		env.ExecuteWorkflow(workflows.TryWorkflow, workflows.TryInput{Training: workflows.TrainingInput{Spec: []byte(`{}`)}, Tasks: 3, Twice: twice})
		require.NoError(t, env.GetWorkflowError())
		var out workflows.TryResult
		require.NoError(t, env.GetWorkflowResult(&out))
		require.Len(t, out.Groups, 3)
		if !twice {
			require.Empty(t, out.Again)
			continue
		}
		require.Len(t, out.Again, 3)
		seen := map[string]int{}
		for _, r := range w.rollouts {
			seen[r.Rollout.String()]++
		}
		require.Len(t, seen, 6)
		for id, n := range seen {
			require.Equal(t, 2, n, id)
		}
	}
}
