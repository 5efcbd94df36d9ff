package workflows_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

func TestVersionZeroScoresAStepBeforeItsCreditIsAssigned(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{true, false} {
		s := testSpec()
		if asked {
			s.Credit.KLInReward = &spec.KL{Weight: 0.1}
		}
		w := &world{score: flat}
		env := w.environment(s.WithDefaults())
		env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
		require.NoError(t, env.GetWorkflowError())
		require.Len(t, w.batches, 4)
		for i, b := range w.batches {
			if !asked {
				require.Empty(t, w.referred)
				require.Empty(t, b.Reference)
				continue
			}
			require.Equal(t, activities.ScoreReferenceInput{Run: "run", Policy: "main", Step: i + 1, Groups: b.Groups}, w.referred[i])
			require.Equal(t, fmt.Sprintf("sha256:reference%d", i+1), b.Reference)
		}
	}
}
