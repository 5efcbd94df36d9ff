package workflows_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

func TestCallsAreJudgedBeforeTheirCreditIsAssigned(t *testing.T) {
	t.Parallel()
	s := testSpec()
	s.Credit.Assignment, s.Credit.Judge = credit.Judge, &spec.Judge{URL: "http://a/v1", Model: "m"}
	fake := &fakeActivities{score: constantScore, reward: randomReward}
	env := fake.environment(s.WithDefaults())
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Len(t, fake.judged, 4)
	for i, b := range fake.batches {
		require.Equal(t, activities.JudgeCallsInput{Run: "run", Policy: "main", Step: i + 1, Groups: b.Groups}, fake.judged[i], "what is trained is judged, and nothing else")
		require.Equal(t, fmt.Sprintf("sha256:judgments%d", i+1), b.Judgments)
		require.InDelta(t, 7, fake.recorded[i].Metrics["judge/score"], 0)
		require.Contains(t, fake.recorded[i].Metrics, "reward/mean")
	}
}

func TestWithoutAJudgeNothingIsJudged(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: constantScore}
	env := fake.environment(testSpec())
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Empty(t, fake.judged)
	for _, b := range fake.batches {
		require.Empty(t, b.Judgments)
	}
}
