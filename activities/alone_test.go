package activities_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// aloneRun returns a run that promotes a checker and a writer alone. Version 0 of both is
// promoted, and solves no task of the gate split.
func aloneRun(t *testing.T) *testEnv {
	t.Helper()
	w := newTestEnv(t)
	s := w.twoPolicies()
	s.Tasks.Gate, s.Promotion.Alone = "arithmetic:gate:5", true
	w.prepare(s)
	w.together(0, 0, nil, []float64{0, 0, 0, 0, 0})
	w.recorded(model.DefaultPolicy, 0)
	for _, policy := range []string{"checker", "writer"} {
		w.promoteOf(model.Decision{Policy: policy, Promoted: -1, Accept: true})
	}
	return w
}

// together puts the rollouts of an evaluation on record, from the ordinal of a task on.
func (w *testEnv) together(version, first int, versions map[string]int, rewards []float64) {
	w.t.Helper()
	terms := record.Terms{Policy: model.DefaultPolicy, Version: version, Policies: []record.PolicyRule{{Policy: "checker"}, {Policy: "writer"}}}
	for i := range terms.Policies {
		if v, ok := versions[terms.Policies[i].Policy]; ok {
			terms.Policies[i].Version = &v
		}
	}
	for i, reward := range rewards {
		id := record.RolloutID{Run: "demo", Kind: record.Gate, Step: version, Task: first + i}
		a, err := w.store.BeginAttempt(w.t.Context(), id, "g", terms, "c0ffee")
		require.NoError(w.t, err)
		require.NoError(w.t, w.store.SealAttempt(w.t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &reward}))
	}
}

// recorded puts the result of an evaluation on record.
func (w *testEnv) recorded(policy string, version int) {
	w.t.Helper()
	require.NoError(w.t, w.store.PutEvaluation(w.t.Context(), record.Evaluation{
		Run: "demo", Policy: policy, EvaluationResult: record.EvaluationResult{Kind: record.Gate, Version: version, Tasks: 5, Rollouts: 5},
	}))
}

// planOf returns with what version 4 of a policy is evaluated.
func (w *testEnv) planOf(policy string) activities.PlanEvaluationResult {
	w.t.Helper()
	out, err := do[activities.PlanEvaluationResult](w.t, w.coordinator.PlanEvaluation, activities.PlanEvaluationInput{Run: "demo", Kind: record.Gate, Policy: policy, Version: 4})
	require.NoError(w.t, err)
	return out
}

// plannedWith is the plan to evaluate a version with what is promoted.
func plannedWith(promoted map[string]int, baseline bool) activities.PlanEvaluationResult {
	return activities.PlanEvaluationResult{Promoted: promoted, Current: promoted, Baseline: baseline}
}

func (w *testEnv) decideOf(policy string) activities.DecidePromotionResult {
	w.t.Helper()
	r, err := do[activities.DecidePromotionResult](w.t, w.coordinator.DecidePromotion, activities.DecidePromotionInput{Run: "demo", Policy: policy, Candidate: 4})
	require.NoError(w.t, err)
	return r
}

func (w *testEnv) promoteOf(d model.Decision) {
	w.t.Helper()
	r, err := do[activities.PromoteVersionResult](w.t, w.coordinator.PromoteVersion, activities.PromoteVersionInput{
		Run: "demo", Policy: d.Policy, DecisionID: decisionID(d.Candidate), Version: d.Candidate, Previous: d.Promoted, Decision: d,
	})
	require.NoError(w.t, err)
	require.True(w.t, r.Moved)
}

// byHandOf moves the pointer of a policy as a person would.
func (w *testEnv) byHandOf(policy string, version, previous int) {
	w.t.Helper()
	require.NoError(w.t, w.store.Promote(w.t.Context(), record.Promotion{
		Run: "demo", Policy: policy, DecisionID: fmt.Sprintf("hand-%d", version), Version: version, Previous: previous, Source: record.SourceRollback, By: "ada@host",
	}))
}

var (
	allSolved  = []float64{1, 1, 1, 1, 1}
	someSolved = []float64{1, 1, 0, 0, 0}
)

func TestAPolicyAloneIsComparedWithWhatIsPromotedOfAll(t *testing.T) {
	t.Parallel()
	w := aloneRun(t)
	require.Equal(t, plannedWith(map[string]int{"checker": 0, "writer": 0}, false), w.planOf("checker"), "all were evaluated together as version 0")
	w.together(4, 0, map[string]int{"checker": 4, "writer": 0}, allSolved)
	w.recorded("checker", 4)
	d := w.decideOf("checker").Decision
	require.True(t, d.Accept)
	require.InDelta(t, 0, d.Baseline, 0)
	require.Equal(t, map[string]int{"checker": 0, "writer": 0}, d.Versions)
	w.promoteOf(d)
	require.Equal(t, plannedWith(map[string]int{"checker": 4, "writer": 0}, false), w.planOf("writer"), "the one after it meets what is promoted by then")
	w.together(4, 5, map[string]int{"checker": 4, "writer": 4}, someSolved)
	w.recorded("writer", 4)
	d = w.decideOf("writer").Decision
	require.False(t, d.Accept, "it solves less than what is promoted, though more than version 0 of both")
	require.InDelta(t, 1, d.Baseline, 0)
	require.InDelta(t, 0.4, d.Reward, 1e-12, "the attempts of the other's evaluation are not its own")
	require.Equal(t, "writer", d.Policy)
}

func TestADecisionOnRecordKeepsWhatThePolicyWasEvaluatedWith(t *testing.T) {
	t.Parallel()
	w := aloneRun(t)
	w.together(4, 0, map[string]int{"checker": 4, "writer": 0}, allSolved)
	w.recorded("checker", 4)
	w.promoteOf(w.decideOf("checker").Decision)
	w.byHandOf("writer", 2, 0)
	require.Equal(t, map[string]int{"checker": 0, "writer": 0}, w.planOf("checker").Promoted, "a run that is reset evaluates it as before")
	require.Equal(t, map[string]int{"checker": 4, "writer": 2}, w.planOf("checker").Current, "but knows what is promoted")
	require.Equal(t, "promoted", w.decideOf("checker").Verdict)
}

func TestAnEvaluationOnRecordKeepsItsVersions(t *testing.T) {
	t.Parallel()
	w := aloneRun(t)
	w.together(4, 0, map[string]int{"checker": 4, "writer": 0}, allSolved)
	w.recorded("checker", 4)
	w.byHandOf("writer", 2, 0)
	require.Equal(t, map[string]int{"checker": 0, "writer": 0}, w.planOf("checker").Promoted)
	require.Equal(t, map[string]int{"checker": 0, "writer": 2}, w.planOf("checker").Current)
	d := w.decideOf("checker").Decision
	require.False(t, d.Accept)
	require.Equal(t, "the promoted version of writer moved after the evaluation had begun", d.Obstacle)
}

func TestWhatWasNotEvaluatedTogetherIsEvaluatedForTheComparison(t *testing.T) {
	t.Parallel()
	w := aloneRun(t)
	w.byHandOf("writer", 2, 0)
	promoted := map[string]int{"checker": 0, "writer": 2}
	require.Equal(t, plannedWith(promoted, true), w.planOf("checker"))
	w.together(4, 0, map[string]int{"checker": 4, "writer": 2}, allSolved)
	w.recorded("checker", 4)
	require.Equal(t, "the promoted versions of the policies were not evaluated together", w.decideOf("checker").Decision.Obstacle)
	w.together(4, spec.Spec{Policies: w.twoPolicies().Policies, Promotion: spec.Promotion{Alone: true}}.FirstBaselineTask("checker", 5), promoted, someSolved)
	d := w.decideOf("checker").Decision
	require.Empty(t, d.Obstacle)
	require.InDelta(t, 0.4, d.Baseline, 1e-12)
	require.Equal(t, 2, d.Versions["writer"])
}
