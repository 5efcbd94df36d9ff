package activities_test

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// gateTasks is the number of tasks in the gate split of a judged run.
const gateTasks = 5

// judged returns a run whose version 0 is promoted and solves no task of its gate split.
func judged(t *testing.T, change func(*spec.Spec)) *testEnv {
	t.Helper()
	w := newTestEnv(t)
	s := w.spec()
	s.Tasks.Gate = "arithmetic:gate:5"
	if change != nil {
		change(&s)
	}
	w.prepare(s)
	w.evaluated(0, []float64{0, 0, 0, 0, 0})
	_, err := w.promote(model.Decision{Promoted: -1, Accept: true})
	require.NoError(t, err)
	return w
}

// evaluated puts a gate evaluation of a version on record, its rewards by sample
// and then by task.
func (w *testEnv) evaluated(version int, samples ...[]float64) {
	w.t.Helper()
	for sample, rewards := range samples {
		for task, reward := range rewards {
			w.scored(version, task, sample, record.OutcomeCompleted, &reward)
		}
	}
}

func (w *testEnv) scored(version, task, sample int, outcome record.Outcome, reward *float64) record.Address {
	w.t.Helper()
	id := record.RolloutID{Run: "demo", Kind: record.Gate, Step: version, Task: task, Sample: sample}
	a, err := w.store.BeginAttempt(w.t.Context(), id, "g", record.Terms{Policy: model.DefaultPolicy, Version: version}, "c0ffee")
	require.NoError(w.t, err)
	if outcome != record.OutcomeRunning {
		require.NoError(w.t, w.store.SealAttempt(w.t.Context(), record.Attempt{Address: a, Outcome: outcome, Reward: reward}))
	}
	return a
}

func (w *testEnv) decide(candidate int) model.Decision {
	w.t.Helper()
	r, err := do[activities.DecidePromotionResult](w.t, w.coordinator.DecidePromotion, activities.DecidePromotionInput{
		Run: "demo", Policy: model.DefaultPolicy, Candidate: candidate,
	})
	require.NoError(w.t, err)
	return r.Decision
}

// promote carries out an accepted decision.
func (w *testEnv) promote(d model.Decision) (activities.PromoteVersionResult, error) {
	return do[activities.PromoteVersionResult](w.t, w.coordinator.PromoteVersion, activities.PromoteVersionInput{
		Run: "demo", Policy: model.DefaultPolicy, DecisionID: decisionID(d.Candidate), Version: d.Candidate, Previous: d.Promoted, Decision: d,
	})
}

func decisionID(candidate int) string { return "gate-" + string(rune('0'+candidate)) }

// byHand moves the pointer as a person would.
func (w *testEnv) byHand(source record.Source, version, previous int) {
	w.t.Helper()
	require.NoError(w.t, w.store.Promote(w.t.Context(), record.Promotion{
		Run: "demo", Policy: model.DefaultPolicy, DecisionID: string(source) + "-" + string(rune('0'+version)), Version: version, Previous: previous,
		Source: source, By: "ada@host", Reason: "a hunch",
	}))
}

func (w *testEnv) promoted() int {
	w.t.Helper()
	p, err := w.store.Promoted(w.t.Context(), "demo", model.DefaultPolicy)
	require.NoError(w.t, err)
	return p.Version
}

func TestADecisionPairsTheTasksOfTheGate(t *testing.T) {
	t.Parallel()
	w := judged(t, nil)
	w.evaluated(1, []float64{1, 1, 1, 0, 0})
	w.evaluated(2, []float64{1, 1, 1, 1, 0})
	d := w.decide(1)
	require.False(t, d.Accept, "three better of five may be chance")
	require.InDelta(t, 1.0/8, d.PValue, 1e-12)
	d = w.decide(2)
	require.True(t, d.Accept)
	require.Equal(t, []any{2, 0, 5}, []any{d.Candidate, d.Promoted, d.Tasks})
	require.InDelta(t, 1.0/16, d.PValue, 1e-12)
	require.InDelta(t, 0.8, d.Difference, 1e-12)
	require.Equal(t, 0, w.promoted(), "a decision moves nothing")
}

func TestSamplesOfATaskAreOneObservation(t *testing.T) {
	t.Parallel()
	w := newTwoSampleEnv(t)
	w.evaluated(2, []float64{1, 1, 1, 1, 0}, []float64{1, 0, 1, 0, 0})
	d := w.decide(2)
	require.Equal(t, 5, d.Tasks)
	require.InDelta(t, 0.6, d.Reward, 1e-12)
	require.InDelta(t, 1.0/16, d.PValue, 1e-12)
}

// newTwoSampleEnv returns a judged run with two samples per task.
func newTwoSampleEnv(t *testing.T) *testEnv {
	w := judged(t, func(s *spec.Spec) { s.Evaluation.Samples = 2 })
	for task := range gateTasks {
		w.scored(0, task, 1, record.AgentFailed, new(float64))
	}
	return w
}

func TestADecisionTakesTheAttemptsThatCount(t *testing.T) {
	t.Parallel()
	w := judged(t, nil)
	zero, one := 0.0, 1.0
	for task := range gateTasks {
		w.scored(2, task, 0, record.InfraFault, nil)
		w.scored(2, task, 0, record.OutcomeCompleted, &zero)
		a := w.scored(2, task, 0, record.OutcomeCompleted, nil)
		require.NoError(t, w.store.PutReward(t.Context(), record.Reward{Address: a, Name: "final", Value: one, Source: "grader"}), "graded later")
		w.scored(2, task, 0, record.OutcomeRunning, nil)
	}
	require.InDelta(t, 1, w.decide(2).Reward, 0, "the last one that ended with a reward, whenever it was graded")
}

func TestAnEvaluationThatLacksARewardPromotesNothing(t *testing.T) {
	t.Parallel()
	w := judged(t, nil)
	w.evaluated(1, []float64{1, 1, 1, 1})
	w.scored(1, 4, 0, record.OutcomeCompleted, nil)
	d := w.decide(1)
	require.False(t, d.Accept)
	require.Contains(t, d.Reason(), "version 1 has 4 rewards of 5")
	d = w.decide(3)
	require.False(t, d.Accept)
	require.Contains(t, d.Reason(), "version 3 has 0 rewards of 5")

	w = newTwoSampleEnv(t)
	w.evaluated(1, []float64{1, 1, 1, 1, 1})
	require.False(t, w.decide(1).Accept, "half of the samples")

	w = judged(t, nil)
	w.evaluated(1, []float64{1, 1, 1, 1, 1})
	w.evaluated(2, []float64{1, 1, 1, 1, 1})
	w.byHand(record.SourceRollback, 4, 0)
	d = w.decide(2)
	require.False(t, d.Accept)
	require.Contains(t, d.Reason(), "version 4 has 0 rewards of 5", "the promoted version lacks them")
}

func TestADecisionReadsThePointerAndTheSpecAsTheyAre(t *testing.T) {
	t.Parallel()
	w := judged(t, nil)
	w.evaluated(1, []float64{1, 1, 1, 1, 1})
	w.evaluated(2, []float64{1, 1, 1, 1, 0})
	w.byHand(record.SourceRollback, 1, 0)
	d := w.decide(2)
	require.Equal(t, 1, d.Promoted)
	require.False(t, d.Accept)
	require.Contains(t, w.decide(1).Reason(), "promoted already")
	w.evaluated(3, []float64{1, 1, 1, 1, 1})
	require.False(t, w.decide(3).Accept, "equal to the promoted one")
}

func TestADecisionUsesWhatWasSetOnTheWay(t *testing.T) {
	t.Parallel()
	w := judged(t, nil)
	w.evaluated(1, []float64{1, 1, 1, 0, 0})
	for significance, accept := range map[float64]bool{0.1: false, 0.125: true, 1: true} {
		r, err := do[activities.DecidePromotionResult](t, w.coordinator.DecidePromotion, activities.DecidePromotionInput{
			Run: "demo", Policy: model.DefaultPolicy, Candidate: 1, Set: map[string]float64{"promotion.significance": significance},
		})
		require.NoError(t, err)
		require.Equal(t, accept, r.Decision.Accept)
	}
}

func TestAPromotionIsMadeOncePerDecision(t *testing.T) {
	t.Parallel()
	w := judged(t, nil)
	d := model.Decision{Candidate: 2, Promoted: 0, Accept: true, ApprovedBy: "ada@host"}
	for range 2 {
		r, err := w.promote(d)
		require.NoError(t, err)
		require.Equal(t, activities.PromoteVersionResult{Moved: true, Promoted: 2}, r)
	}
	history, err := w.store.Promotions(t.Context(), "demo", model.DefaultPolicy)
	require.NoError(t, err)
	require.Len(t, history, 2)
	require.Equal(t, []any{record.SourceGate, "ada@host"}, []any{history[1].Source, history[1].By})
	var evidence model.Decision
	require.NoError(t, json.Unmarshal(history[1].Evidence, &evidence))
	require.Equal(t, d, evidence)

	w.byHand(record.SourceRollback, 0, 2)
	r, err := w.promote(d)
	require.NoError(t, err)
	require.Equal(t, []any{false, 0}, []any{r.Moved, r.Promoted}, "a retry after a rollback does not undo it")
}

func TestAPinnedPointerStays(t *testing.T) {
	t.Parallel()
	w := judged(t, nil)
	w.byHand(record.SourcePin, 0, 0)
	d := model.Decision{Candidate: 2, Promoted: 0, Accept: true}
	r, err := w.promote(d)
	require.NoError(t, err)
	require.Equal(t, []any{false, 0}, []any{r.Moved, r.Promoted})
	require.Contains(t, r.Reason, "pinned by ada@host")
	w.byHand(record.SourceUnpin, 0, 0)
	again, err := w.promote(d)
	require.NoError(t, err)
	require.Equal(t, r, again, "a retry finds what was decided, not what is possible now")
	decisions, err := w.store.Decisions(t.Context(), "demo", model.DefaultPolicy)
	require.NoError(t, err)
	require.Len(t, decisions, 1)
	require.Equal(t, []any{"gate-2", 2, 0, "pinned"}, []any{decisions[0].DecisionID, decisions[0].Candidate, decisions[0].Promoted, decisions[0].Verdict})
	r, err = w.promote(model.Decision{Candidate: 3, Promoted: 0, Accept: true})
	require.NoError(t, err)
	require.True(t, r.Moved, "unpinned, later candidates are promoted")
}

func TestAPointerThatSomebodyMovedStaysThere(t *testing.T) {
	t.Parallel()
	w := judged(t, nil)
	w.byHand(record.SourceRollback, 4, 0)
	r, err := w.promote(model.Decision{Candidate: 2, Promoted: 0, Accept: true})
	require.NoError(t, err)
	require.Equal(t, []any{false, 4}, []any{r.Moved, r.Promoted})
	require.Contains(t, r.Reason, "version 4 stays promoted: a hunch")
	require.Equal(t, 4, w.promoted())
}

func TestOfManyExecutorsOneDecisionComesOfIt(t *testing.T) {
	t.Parallel()
	w := judged(t, nil)
	w.byHand(record.SourcePin, 0, 0)
	results := make([]activities.PromoteVersionResult, 8)
	failures := make([]error, len(results))
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() { results[i], failures[i] = w.promote(model.Decision{Candidate: 2, Promoted: 0, Accept: true}) })
	}
	w.byHand(record.SourceUnpin, 0, 0)
	wg.Wait()
	for i, err := range failures {
		require.NoError(t, err)
		require.Equal(t, results[0], results[i])
	}
	require.Equal(t, results[0].Promoted, w.promoted())
}

func TestAPromotionOfWhatTheDecisionDidNotSayIsFinal(t *testing.T) {
	t.Parallel()
	w := judged(t, nil)
	_, err := do[activities.PromoteVersionResult](t, w.coordinator.PromoteVersion, activities.PromoteVersionInput{
		Run: "demo", Policy: model.DefaultPolicy, DecisionID: "gate-0", Version: 7, Previous: 0,
	})
	requireFinal(t, err, "conflict")
}

// recordDecision records a decision that moved no pointer.
func (w *testEnv) recordDecision(d model.Decision, verdict string) activities.RecordDecisionResult {
	w.t.Helper()
	r, err := do[activities.RecordDecisionResult](w.t, w.coordinator.RecordDecision, activities.RecordDecisionInput{
		Run: "demo", Policy: model.DefaultPolicy, Decision: d, Verdict: verdict,
	})
	require.NoError(w.t, err)
	return r
}

func TestDecisionsThatMoveNothingAreOnRecordWithTheirReason(t *testing.T) {
	t.Parallel()
	w := judged(t, nil)
	accepted := model.Decision{Candidate: 3, Promoted: 0, Reward: 0.5, Accept: true}
	for range 2 {
		require.Zero(t, w.recordDecision(model.Decision{Candidate: 1, Obstacle: "no grader"}, "refused"))
		require.Zero(t, w.recordDecision(model.Decision{Candidate: 2, Tasks: 5, PValue: 0.25, Significance: 0.1}, "refused"))
		require.Zero(t, w.recordDecision(accepted, "rejected by ada@host: too slow"))
		require.Zero(t, w.recordDecision(model.Decision{Candidate: 4}, "refused: by a workflow of old"))
	}
	require.Equal(t, activities.RecordDecisionResult{Verdict: "rejected by ada@host: too slow"}, w.recordDecision(accepted, "timed_out"), "the first one stands")
	got, err := w.store.Decisions(t.Context(), "demo", model.DefaultPolicy)
	require.NoError(t, err)
	require.Len(t, got, 4)
	require.Equal(t, []string{"refused", "version 1 refused: no grader"}, []string{got[0].Verdict, got[0].Reason})
	require.Equal(t, []string{"refused", "version 4 refused: by a workflow of old"}, []string{got[3].Verdict, got[3].Reason})
	for i, obstacle := range map[int]string{0: "no grader", 3: "by a workflow of old"} {
		var evidence model.Decision
		require.NoError(t, json.Unmarshal(got[i].Evidence, &evidence))
		require.Equal(t, obstacle, evidence.Obstacle, "the evidence says why")
	}
	require.Contains(t, got[1].Reason, "p = 0.25, at most 0.1")
	require.Equal(t, "rejected by ada@host: too slow", got[2].Verdict)
	require.Contains(t, got[2].Reason, "version 3 refused", "whatever the rule said")
	var evidence model.Decision
	require.NoError(t, json.Unmarshal(got[2].Evidence, &evidence))
	require.Equal(t, accepted, evidence)
}

func TestQuarantinedTasksAreOnRecordOnce(t *testing.T) {
	t.Parallel()
	w := judged(t, nil)
	f := w.coordinator.RecordQuarantine
	put := func(reserve bool, reason string) error {
		_, err := environment(f, nil).ExecuteActivity(f, activities.RecordQuarantineInput{
			Run: "demo", Policy: model.DefaultPolicy, Step: 2, Task: 7, Index: 1, Reserve: reserve, Reason: reason,
		})
		return err
	}
	require.NoError(t, put(false, "no grader"))
	require.NoError(t, put(false, "no grader"))
	require.NoError(t, put(true, "no grader"))
	require.NoError(t, put(false, "bad luck"), "found so again for another reason")
	got, err := w.store.Quarantines(t.Context(), "demo", model.DefaultPolicy)
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, []record.Kind{record.Train, record.Reserve}, []record.Kind{got[0].Kind, got[1].Kind})
	require.Equal(t, []any{2, 7, 1, "no grader"}, []any{got[0].Step, got[0].Task, got[0].Index, got[0].Reason})
}
