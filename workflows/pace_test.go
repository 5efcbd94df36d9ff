package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/workflows"
)

func TestPaceIsOfTheStepUnderWay(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rollouts := workflows.Progress{
		Phase: workflows.PhaseRollouts, Rollouts: workflows.Count{Done: 16, Total: 64}, StepTokens: 1000, Since: began, UpdateSeconds: 12,
	}
	require.Equal(t, "100 tokens/s, next version in 42s", rollouts.PaceText(began.Add(10*time.Second)))
	first := rollouts
	first.UpdateSeconds = 0
	require.Equal(t, "100 tokens/s, next version in 30s", first.PaceText(began.Add(10*time.Second)), "of the first update nothing is known")
	none := rollouts
	none.Rollouts.Done, none.StepTokens = 0, 0
	require.Empty(t, none.PaceText(began.Add(10*time.Second)))
	require.Empty(t, rollouts.PaceText(began.Add(-time.Second)), "clocks differ")

	update := workflows.Progress{Phase: workflows.PhaseUpdate, Since: began, UpdateSeconds: 12}
	require.Equal(t, "next version in 9s", update.PaceText(began.Add(3*time.Second)))
	require.Empty(t, update.PaceText(began.Add(time.Minute)), "it takes longer than the last")
	require.Empty(t, workflows.Progress{Phase: workflows.PhaseEvaluation}.PaceText(began))
	evaluation := workflows.Progress{Phase: workflows.PhaseEvaluation, Rollouts: workflows.Count{Done: 5, Total: 20}, Since: began}
	require.Equal(t, "result in 30s", evaluation.PaceText(began.Add(10*time.Second)))
}
