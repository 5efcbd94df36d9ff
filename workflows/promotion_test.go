package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
