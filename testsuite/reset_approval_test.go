package testsuite_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// waitsForApproval waits until the only thing that a run still needs is a decision.
func waitsForApproval(ctx context.Context, t *testing.T, st *stack.Stack, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		answer, err := st.Client.QueryWorkflow(ctx, name, "", workflows.QueryProgress)
		if err != nil {
			return false
		}
		var p workflows.Progress
		return answer.Get(&p) == nil && p.Phase == workflows.PhaseApproval && p.Pending != nil
	}, 5*time.Minute, 50*time.Millisecond)
}

// approved approves the last candidate and returns the run's result.
func approved(ctx context.Context, t *testing.T, st *stack.Stack, name string) workflows.TrainingResult {
	t.Helper()
	waitsForApproval(ctx, t, st, name)
	update(ctx, t, st, name, workflows.UpdateApprove, workflows.VerdictInput{By: "ada"})
	var out workflows.TrainingResult
	require.NoError(t, st.Client.GetWorkflow(ctx, name, "").Get(ctx, &out))
	return out
}

func TestARunResetWhileAnApprovalWaitsIsDecidedOnOnce(t *testing.T) {
	t.Parallel()
	skipShort(t, "other runs use the same goroutines")
	ctx := t.Context()
	st := sharedStack(t)
	s := deciding(0, 2)
	s.Promotion.Approval = true
	s = s.WithDefaults()
	_ = inBackground(ctx, st, "approval-undisturbed", s)
	want := approved(ctx, t, st, "approval-undisturbed")
	require.NotZero(t, want.Promoted)

	_ = inBackground(ctx, st, "approval-reset", s)
	waitsForApproval(ctx, t, st, "approval-reset")
	first := firstExecution(ctx, t, st.Client, "approval-reset")
	ids, kinds := points(eventsOf(ctx, t, st.Client, "approval-reset"))
	_, err := reset(ctx, st.Client, "approval-reset", first, ids[len(ids)-1])
	require.NoError(t, err)
	waitsForApproval(ctx, t, st, "approval-reset")
	decision := ids[slices.IndexFunc(ids, func(id int64) bool { return kinds[id] == "DecidePromotion" })]
	_, err = reset(ctx, st.Client, "approval-reset", first, decision)
	require.NoError(t, err)
	got := approved(ctx, t, st, "approval-reset")
	want.Run = got.Run
	require.Equal(t, want, got)
	requireWhole(ctx, t, st, "approval-reset")

	// The decision of a person is recorded, so a reset does not ask again.
	run, err := reset(ctx, st.Client, "approval-reset", first, decision)
	require.NoError(t, err)
	require.NoError(t, st.Client.GetWorkflow(ctx, "approval-reset", run).Get(ctx, &got))
	require.Equal(t, want, got)
	requireWhole(ctx, t, st, "approval-reset")
}
