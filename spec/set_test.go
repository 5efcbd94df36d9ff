package spec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec"
)

func TestSetChangesWhatLaterStepsRead(t *testing.T) {
	t.Parallel()
	s := valid()
	changed, err := s.Set(map[string]float64{"training.optimizer.learning_rate": 1e-4, "evaluation.every": 2, "promotion.margin": 0.1})
	require.NoError(t, err)
	want := s.WithDefaults()
	want.Training.Optimizer.LearningRate, want.Evaluation.Every, want.Promotion.Margin = 1e-4, 2, 0.1
	require.Equal(t, want, changed)
	require.Equal(t, valid(), s, "the original stays")
}

func TestSetChangesPartsThatTheSpecHas(t *testing.T) {
	t.Parallel()
	s := valid()
	numbers := map[string]float64{"loss.kl.weight": 0.5, "loss.preference.beta": 0.3, "critic.learning_rate": 0.01, "critic.clip": 0.3}
	_, err := s.Set(numbers)
	for key := range numbers {
		require.ErrorContains(t, err, key+": can't be set while this run is under way")
	}
	s.Loss = spec.Loss{KL: &spec.KL{Weight: 0.1}, Preference: &spec.LossPreference{}}
	s.Credit = spec.Credit{Assignment: credit.TurnGAE}
	s.Critic = &spec.Critic{}
	numbers["loss.entropy"] = 0.01
	changed, err := s.Set(numbers)
	require.NoError(t, err)
	require.Equal(t, &spec.KL{Estimator: "k3", Weight: 0.5}, changed.Loss.KL)
	require.InDelta(t, 0.01, changed.Loss.Entropy, 0)
	require.Equal(t, &spec.Critic{LearningRate: 0.01, Passes: 4, Clip: 0.3}, changed.Critic)
	require.Equal(t, &spec.LossPreference{Beta: 0.3, Reference: spec.ReferenceParent}, changed.Loss.Preference)
	require.Equal(t, &spec.KL{Weight: 0.1}, s.Loss.KL, "the original stays")
	require.Equal(t, &spec.LossPreference{}, s.Loss.Preference)
	require.Equal(t, &spec.Critic{}, s.Critic)
}

func TestABudgetCanBeChangedButNotBegun(t *testing.T) {
	t.Parallel()
	s := valid()
	_, err := s.Set(map[string]float64{spec.KeyBudgetHours: 2})
	require.ErrorContains(t, err, "budget.hours: can't be set while this run is under way")
	s.Budget = &spec.Budget{Calls: 100}
	changed, err := s.Set(map[string]float64{spec.KeyBudgetHours: 2.5, spec.KeyBudgetCalls: 200})
	require.NoError(t, err)
	require.Equal(t, &spec.Budget{Calls: 200, Hours: 2.5}, changed.Budget)
	require.Equal(t, &spec.Budget{Calls: 100}, s.Budget, "the original stays")
	for key, want := range map[string]string{spec.KeyBudgetTokens: "budget.tokens: -1 is not possible", spec.KeyBudgetHours: "budget.hours: 1.5e+07 is not possible"} {
		_, err = s.Set(map[string]float64{key: map[string]float64{spec.KeyBudgetTokens: 0.5, spec.KeyBudgetHours: 1.5e7}[key]})
		require.ErrorContains(t, err, want)
	}
	_, err = s.Set(map[string]float64{spec.KeyBudgetCalls: 0})
	require.ErrorContains(t, err, "budget: empty; give budget.tokens, budget.calls or budget.hours, or leave budget out")
}

func TestSchedulingCanBeChangedInAnyRun(t *testing.T) {
	t.Parallel()
	s := valid()
	changed, err := s.Set(map[string]float64{spec.KeyWeight: 2.5, spec.KeyPriority: 1})
	require.NoError(t, err)
	require.Equal(t, spec.Scheduling{Weight: 2.5, Priority: 1}, changed.Scheduling)
	require.Zero(t, s.Scheduling, "the original stays")
	require.InDelta(t, 3, s.SettableValues()[spec.KeyPriority], 0)
	require.InDelta(t, 1, s.SettableValues()[spec.KeyWeight], 0)
	for key, want := range map[string]string{
		spec.KeyWeight:   "scheduling.weight: 1001 is not possible; give at least 0.001 and at most 1000",
		spec.KeyPriority: "scheduling.priority: 1001 is not possible; give at least 1 and at most 5",
	} {
		_, err := s.Set(map[string]float64{key: 1001})
		require.ErrorContains(t, err, want)
	}
	_, err = s.Set(map[string]float64{spec.KeyPriority: 1.5})
	require.ErrorContains(t, err, "scheduling.priority: -1 is not possible")
}

func TestSetRefusesWhatCannotChangeOrCannotBe(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		values map[string]float64
		want   string
	}{
		"unknown":    {map[string]float64{"training.lr": 1}, "training.lr: can't be set while this run is under way; one of evaluation.every, "},
		"too late":   {map[string]float64{"training.lag": 1}, "training.lag: can't be set"},
		"impossible": {map[string]float64{"training.optimizer.learning_rate": -1}, "training.optimizer.learning_rate: -1 is not possible"},
		"useless":    {map[string]float64{"loss.importance_cap": 3}, "loss.importance_cap: "},
		"fraction":   {map[string]float64{"evaluation.every": 2.5}, "evaluation.every: "},
	} {
		_, err := valid().Set(c.values)
		require.ErrorContains(t, err, c.want, name)
	}
}

func TestSettableValuesAreThoseThatSetGave(t *testing.T) {
	t.Parallel()
	s, err := valid().Set(map[string]float64{"training.optimizer.learning_rate": 1e-4, "evaluation.every": 2})
	require.NoError(t, err)
	values := s.SettableValues()
	require.Len(t, values, len(s.SettableKeys()))
	require.InDelta(t, 1e-4, values["training.optimizer.learning_rate"], 0)
	require.InDelta(t, 2, values["evaluation.every"], 0)
}
