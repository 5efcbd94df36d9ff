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
		fake := &fakeActivities{score: constantScore}
		env := fake.environment(s.WithDefaults())
		env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
		require.NoError(t, env.GetWorkflowError())
		require.Len(t, fake.batches, 4)
		for i, b := range fake.batches {
			if !asked {
				require.Empty(t, fake.references)
				require.Empty(t, b.Reference)
				continue
			}
			require.Equal(t, activities.ScoreReferenceInput{Run: "run", Policy: "main", Step: i + 1, Groups: b.Groups}, fake.references[i])
			require.Equal(t, fmt.Sprintf("sha256:reference%d", i+1), b.Reference)
		}
	}
}
