package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// ask executes DecidePromotion.
func (w *testEnv) ask(candidate int) activities.DecidePromotionResult {
	w.t.Helper()
	r, err := do[activities.DecidePromotionResult](w.t, w.coordinator.DecidePromotion, activities.DecidePromotionInput{
		Run: "demo", Policy: model.DefaultPolicy, Candidate: candidate,
	})
	require.NoError(w.t, err)
	return r
}

func TestADecisionOnRecordIsReturnedAsItStands(t *testing.T) {
	t.Parallel()
	w := judged(t, nil)
	for v := range 5 {
		w.evaluated(v+1, []float64{1, 1, 1, 1, 1})
	}
	accepted := w.ask(1)
	require.Empty(t, accepted.Verdict)
	accepted.Decision.ApprovedBy = "ada@host"
	_, err := w.promote(accepted.Decision)
	require.NoError(t, err)
	refused := w.ask(2)
	require.False(t, refused.Decision.Accept)
	w.recordDecision(refused.Decision, "refused")
	rejected := model.Decision{Candidate: 3, Promoted: 1, Accept: true}
	w.recordDecision(rejected, "rejected by ada@host")
	w.byHand(record.SourcePin, 1, 1)
	pinned := model.Decision{Candidate: 4, Promoted: 1, Accept: true}
	_, err = w.promote(pinned)
	require.NoError(t, err)

	for candidate, want := range map[int]activities.DecidePromotionResult{
		1: {Decision: accepted.Decision, Verdict: "promoted"},
		2: {Decision: refused.Decision, Verdict: "refused"},
		3: {Decision: rejected, Verdict: "rejected by ada@host"},
		4: {Decision: pinned, Verdict: "pinned"},
	} {
		got := w.ask(candidate)
		require.Equal(t, want, got)
		require.Equal(t, candidate == 1 || candidate == 4, got.Moved())
	}
	require.Equal(t, activities.RecordDecisionResult{Verdict: "promoted", Promoted: 1},
		w.recordDecision(model.Decision{Candidate: 1, Promoted: 1}, "refused"), "the pointer moved by it")
}
