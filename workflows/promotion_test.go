package workflows_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// risingScore is an agent that gets better with each version.
func risingScore(version int, _ record.Kind) float64 { return float64(version) }

func approvalSpec() spec.Spec {
	s := testSpec()
	s.Promotion.Approval, s.Promotion.ApprovalHours = true, 5
	return s
}

func TestNothingIsPromotedBeforeAPersonApproves(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: risingScore}
	env := fake.environment(approvalSpec())
	var early, wrong, approved updateCallback
	env.RegisterDelayedCallback(func() {
		require.Len(t, fake.promoted, 1, "version 0 alone")
		require.Len(t, fake.trained, 4, "training does not wait")
		env.UpdateWorkflow(workflows.UpdateApprove, "1", &early, workflows.VerdictInput{})
		env.UpdateWorkflow(workflows.UpdateApprove, "2", &wrong, workflows.VerdictInput{By: "ada", Version: 2})
		env.UpdateWorkflow(workflows.UpdateApprove, "3", &approved, workflows.VerdictInput{By: "ada", Version: 4})
	}, time.Hour)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	var out workflows.TrainingResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.ErrorContains(t, early.rejected, "by is missing")
	require.ErrorContains(t, wrong.rejected, "version 4 waits for approval, not version 2")
	require.Equal(t, "version 4 promoted, approved by ada", approved.result.Message)
	require.Equal(t, 4, out.Promoted)
	require.InDelta(t, 4, out.After.Mean, 0, "the approved version is the one that is reported")
	require.Equal(t, "ada", fake.promoted[1].Decision.ApprovedBy)
	require.Len(t, fake.decided, 1)
	require.Equal(t, 2, fake.decided[0].Decision.Candidate)
	require.Equal(t, "superseded by version 4", fake.decided[0].Verdict)
}

func TestARejectedCandidateIsNotPromoted(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: risingScore}
	env := fake.environment(approvalSpec())
	var rejected updateCallback
	env.RegisterDelayedCallback(func() {
		env.UpdateWorkflow(workflows.UpdateReject, "1", &rejected, workflows.VerdictInput{By: "ada", Reason: "rude"})
	}, time.Hour)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	var out workflows.TrainingResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Zero(t, out.Promoted)
	require.Equal(t, "version 4 rejected by ada: rude", rejected.result.Message)
	require.Len(t, fake.decided, 2)
	require.Equal(t, "rejected by ada: rude", fake.decided[1].Verdict)
	require.Equal(t, record.Completed, fake.finished[0].Status)
}

func TestACandidateThatNobodyDecidesOnIsRefusedInTime(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: risingScore}
	env := fake.environment(approvalSpec())
	began := env.Now()
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	var out workflows.TrainingResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Zero(t, out.Promoted)
	require.Len(t, fake.decided, 2, "the run ends when the refusal is on record")
	require.Equal(t, "timed_out", fake.decided[1].Verdict)
	require.GreaterOrEqual(t, env.Now().Sub(began), 5*time.Hour)
}

func TestAPinnedPointerStaysAndTheRunGoesOn(t *testing.T) {
	t.Parallel()
	pinned := 0
	fake := &fakeActivities{score: risingScore, movedTo: &pinned}
	env := fake.environment(testSpec())
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	var out workflows.TrainingResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Zero(t, out.Promoted)
	require.Equal(t, 4, out.Steps)
	require.Equal(t, out.Before, out.After)
}

func TestAFailedEvaluationPromotesNothing(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: risingScore}
	env := fake.environment(testSpec())
	fake.ungradedFrom = 1
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	var out workflows.TrainingResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, 4, out.Steps)
	require.Zero(t, out.Promoted)
	require.Len(t, fake.promoted, 1)
	require.Len(t, fake.decided, 2)
	require.Equal(t, "refused", fake.decided[0].Verdict)
	require.Contains(t, fake.decided[0].Decision.Obstacle, "can't be graded: grader exits with 3")
	require.False(t, fake.decided[0].Decision.Accept)
}

func TestWithoutABaselineARunFails(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: risingScore, ungraded: map[record.Kind]bool{record.Gate: true}}
	env := fake.environment(testSpec())
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.ErrorContains(t, env.GetWorkflowError(), "of the gate split can't be graded")
	require.Equal(t, record.Failed, fake.finished[0].Status)
}

func TestAReportThatFailsIsLeftOut(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: risingScore, ungraded: map[record.Kind]bool{record.Test: true}}
	env := fake.environment(testSpec())
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	var out workflows.TrainingResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, 4, out.Promoted)
	require.Nil(t, out.Before)
	require.Nil(t, out.After)
}

func TestEachPolicyIsPromotedInTheOrderOfNames(t *testing.T) {
	t.Parallel()
	s := testSpec()
	s.Policies = map[string]spec.Policy{"b": {}, "a": {Match: []spec.PolicyMatch{{Agent: "a"}}}, "rest": {Match: []spec.PolicyMatch{{Agent: "r"}}, Frozen: true}}
	s.Promotion.Alone = true
	fake := &fakeActivities{score: risingScore}
	env := fake.environment(s)
	var c *activities.Coordinator
	var planned []string
	env.OnActivity(c.PlanEvaluation, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.PlanEvaluationInput) (activities.PlanEvaluationResult, error) {
		fake.mu.Lock()
		defer fake.mu.Unlock()
		planned = append(planned, fmt.Sprintf("%s@%d", in.Policy, in.Version))
		out := activities.PlanEvaluationResult{Promoted: map[string]int{"a": 0, "b": 0, "rest": 0}, Baseline: in.Kind == record.Gate && in.Policy == "b" && in.Version == 2}
		for _, p := range fake.promoted {
			out.Promoted[p.Policy] = p.Version
		}
		return out, nil
	})
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	var out workflows.TrainingResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, []string{"a@2", "b@2", "a@4", "b@4", "a@4"}, planned, "and what is promoted is tested at the end")
	var moves []string
	for _, p := range fake.promoted {
		moves = append(moves, fmt.Sprintf("%s@%d", p.Policy, p.Version))
	}
	require.Equal(t, []string{"a@0", "b@0", "rest@0", "a@2"}, moves[:4])
	require.NotContains(t, moves, "main@0", "no joint version is promoted")
	first := map[int]map[string]int{} // versions by the ordinal of a task, of step 2
	for _, r := range fake.rollouts {
		if r.Rollout.Kind == record.Gate && r.Rollout.Step == 2 {
			first[r.Rollout.Task] = r.Versions
			require.Equal(t, r.Rollout.Task%10, r.Index)
		}
	}
	require.Len(t, first, 30, "two candidates, and the baseline of the second")
	require.Equal(t, map[string]int{"a": 2, "b": 0, "rest": 0}, first[0])
	require.Equal(t, map[string]int{"a": 2, "b": 2, "rest": 0}, first[10])
	require.Equal(t, map[string]int{"a": 2, "b": 0, "rest": 0}, first[39], "what is promoted, without the candidate")
	require.Equal(t, 4, out.Policies["a"])
}

// planned answers PlanEvaluation with what the fake promoted, as changed by a person, who acts
// before the last report. It returns the questions.
func (fake *fakeActivities) planned(env *testsuite.TestWorkflowEnvironment, byHand map[string]int) *[]string {
	var c *activities.Coordinator
	var asked []string
	env.OnActivity(c.PlanEvaluation, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.PlanEvaluationInput) (activities.PlanEvaluationResult, error) {
		fake.mu.Lock()
		defer fake.mu.Unlock()
		asked = append(asked, fmt.Sprintf("%s %s@%d", in.Kind, in.Policy, in.Version))
		promoted := map[string]int{"a": 0, "b": 0}
		for _, p := range fake.promoted {
			promoted[p.Policy] = p.Version
		}
		if in.Kind == record.Test {
			maps.Copy(promoted, byHand)
		}
		return activities.PlanEvaluationResult{Promoted: promoted, Current: promoted}, nil
	})
	return &asked
}

// pairSpec promotes two policies alone.
func pairSpec() spec.Spec {
	s := testSpec()
	s.Policies = map[string]spec.Policy{"a": {}, "b": {Match: []spec.PolicyMatch{{Agent: "b"}}}}
	s.Promotion.Alone = true
	return s
}

func TestTheLastReportIsOfWhatAPersonPromoted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		byHand   map[string]int
		plans    []string // of the last report
		versions map[string]int
	}{
		"nobody acted":                   {nil, []string{"test a@4"}, map[string]int{"a": 4, "b": 0}},
		"the last one was rolled back":   {map[string]int{"a": 2}, []string{"test a@4", "test a@2"}, map[string]int{"a": 2, "b": 0}},
		"another one was promoted":       {map[string]int{"b": 2}, []string{"test a@4"}, map[string]int{"a": 4, "b": 2}},
		"another one is the last now":    {map[string]int{"a": 1, "b": 3}, []string{"test a@4", "test b@3"}, map[string]int{"a": 1, "b": 3}},
		"all are at version 0 as before": {map[string]int{"a": 0}, []string{"test a@4"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := &fakeActivities{score: risingScore}
			env := fake.environment(pairSpec())
			asked := fake.planned(env, test.byHand)
			env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
			var out workflows.TrainingResult
			require.NoError(t, env.GetWorkflowResult(&out))
			require.Equal(t, append([]string{"gate a@2", "gate b@2", "gate a@4", "gate b@4"}, test.plans...), *asked)
			reported := 0
			for _, r := range fake.rollouts {
				if r.Rollout.Kind == record.Test && r.Rollout.Step > 0 {
					reported++
					require.Equal(t, test.versions, r.Versions, r.Rollout)
				}
			}
			require.Equal(t, test.versions != nil, reported > 0)
			for policy, version := range test.byHand {
				require.Equal(t, version, out.Policies[policy], "the result says what is promoted")
			}
			if test.versions == nil {
				require.Equal(t, out.Before, out.After)
			}
		})
	}
}
