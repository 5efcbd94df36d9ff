package workflows_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

func TestATrialRunsEachRolloutTwiceIfAsked(t *testing.T) {
	t.Parallel()
	for _, twice := range []bool{false, true} {
		fake := &fakeActivities{score: func(int, record.Kind) float64 { return 1 }}
		env := fake.environment(testSpec())
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
		for _, r := range fake.rollouts {
			seen[r.Rollout.String()]++
		}
		require.Len(t, seen, 6)
		for id, n := range seen {
			require.Equal(t, 2, n, id)
		}
	}
}

// tried returns the result of a trial with fake.
func tried(t *testing.T, fake *fakeActivities, s spec.Spec, in workflows.TryInput) workflows.TryResult {
	t.Helper()
	env := fake.environment(s)
	env.RegisterWorkflow(workflows.TryWorkflow)
	in.Training = workflows.TrainingInput{Spec: []byte(`{}`)}
	env.ExecuteWorkflow(workflows.TryWorkflow, in)
	require.NoError(t, env.GetWorkflowError())
	var out workflows.TryResult
	require.NoError(t, env.GetWorkflowResult(&out))
	return out
}

func TestATrialAssignsCreditAsAStepDoes(t *testing.T) {
	t.Parallel()
	s := testSpec()
	s.Credit.Assignment, s.Credit.Judge = credit.Judge, &spec.Judge{URL: "http://a/v1", Model: "m"}
	fake := &fakeActivities{score: constantScore}
	out := tried(t, fake, s.WithDefaults(), workflows.TryInput{Indices: []int{4, 2}, Samples: 3})
	require.Equal(t, "sha256:batch1", out.Batch)
	require.Empty(t, out.Failure)
	require.Len(t, fake.batches, 1)
	require.Equal(t, out.Groups, fake.batches[0].Groups)
	require.Equal(t, "sha256:judgments1", fake.batches[0].Judgments)
	require.Equal(t, []activities.JudgeCallsInput{{Run: fake.batches[0].Run, Policy: "main", Step: workflows.TryStep, Groups: out.Groups}}, fake.judged)
	for i, task := range []int{4, 2} {
		require.Equal(t, task, out.Groups[i].Task)
		require.Equal(t, record.Try, out.Groups[i].Kind)
		require.Len(t, out.Groups[i].Rewards, 3)
	}
	require.Empty(t, fake.trained)
}

func TestNoCreditIsAssignedToQuarantinedTasksOfATrial(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: constantScore, ungraded: map[record.Kind]bool{record.Try: true}}
	out := tried(t, fake, testSpec(), workflows.TryInput{Tasks: 2})
	require.Len(t, out.Groups, 2)
	require.Equal(t, []workflows.Quarantine{
		{Index: 0, Step: workflows.TryStep, Reason: "grader exits with 3"}, {Index: 1, Step: workflows.TryStep, Reason: "grader exits with 3"},
	}, out.Quarantined)
	require.Empty(t, fake.batches)
	require.Empty(t, out.Batch)
}

func TestWhatWouldEndARunIsTheResultOfATrial(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: constantScore, agentError: temporal.NewNonRetryableApplicationError("no such agent", activities.ErrTypeInvalid, nil)}
	out := tried(t, fake, testSpec(), workflows.TryInput{Tasks: 2})
	require.Equal(t, workflows.TryRollouts, out.Phase)
	require.Equal(t, "no such agent", out.Failure)
	require.Empty(t, fake.batches)
}
