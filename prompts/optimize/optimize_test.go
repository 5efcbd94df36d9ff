package optimize_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/prompts/optimize"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/spec"
)

func optimizing(change func(o *spec.PromptOptimizer)) spec.Spec {
	o := &spec.PromptOptimizer{Budget: spec.OptimizerBudget{Minibatch: 6, Validation: 20, Reflections: 1}}
	change(o)
	return spec.Spec{Seed: 7, Prompts: &spec.Prompts{Texts: []spec.PromptText{{Name: "b", Text: "x"}, {Name: "a", Text: "y"}}}, Optimizer: o}.WithDefaults()
}

func TestASearchHasTheSettingsOfTheSpec(t *testing.T) {
	t.Parallel()
	no := false
	s, err := optimize.Of(optimizing(func(o *spec.PromptOptimizer) {
		o.Samples, o.ValidationSamples, o.Patience, o.Budget = 2, 3, 5, spec.OptimizerBudget{Minibatch: 60, Validation: 200, Reflections: 9}
		o.GEPA = &spec.GEPA{Minibatch: 4, Merge: true, Merges: 6, SkipPerfect: &no}
	}), 30, 10)
	require.NoError(t, err)
	g, ok := s.(*search.GEPA)
	require.True(t, ok)
	one := 1.0
	require.Equal(t, search.Settings{
		Prompts: []search.Prompt{{Name: "b", Text: "x"}, {Name: "a", Text: "y"}}, Train: 30, Validation: 10, Seed: 7,
		Budget: search.Budget{Minibatch: 60, Validation: 200, Reflections: 9}, Samples: 2, ValidationSamples: 3, Perfect: &one, Patience: 5,
	}, g.Settings)
	require.Equal(t, search.GEPASettings{Minibatch: 4, Merge: true, Merges: 6, SkipPerfect: &no}, g.Options)

	s, err = optimize.Of(optimizing(func(o *spec.PromptOptimizer) {
		o.Algorithm, o.APO = spec.AlgorithmAPO, &spec.APO{Beam: 1, Branch: 2, Rounds: 5, GradientBatch: 6, ValidationBatch: 4}
		o.Budget = spec.OptimizerBudget{Minibatch: 60, Validation: 200, Reflections: 9}
	}), 30, 10)
	require.NoError(t, err)
	a, ok := s.(*search.APO)
	require.True(t, ok)
	require.Equal(t, search.APOSettings{Beam: 1, Branch: 2, Rounds: 5, GradientBatch: 6, ValidationBatch: 4}, a.Options)
}

func TestTheDefaultsAreThoseOfTheSearch(t *testing.T) {
	t.Parallel()
	budget := search.Budget{Minibatch: 1000, Validation: 1000, Reflections: 100}
	settings := search.Settings{Prompts: []search.Prompt{{Name: "b", Text: "x"}, {Name: "a", Text: "y"}}, Train: 30, Validation: 20, Seed: 7, Budget: budget}
	gepa, err := search.NewGEPA(settings, search.GEPASettings{})
	require.NoError(t, err)
	apo, err := search.NewAPO(settings, search.APOSettings{})
	require.NoError(t, err)
	s, err := optimize.Of(optimizing(func(o *spec.PromptOptimizer) { o.Budget = spec.OptimizerBudget(budget) }), 30, 20)
	require.NoError(t, err)
	require.Equal(t, gepa, s)
	s, err = optimize.Of(optimizing(func(o *spec.PromptOptimizer) { o.Algorithm, o.Budget = "apo", spec.OptimizerBudget(budget) }), 30, 20)
	require.NoError(t, err)
	require.Equal(t, apo, s)
}

func TestWhatTheNumbersOfTasksRuleOutIsRefused(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		change            func(o *spec.PromptOptimizer)
		train, validation int
		budget            bool
	}{
		"tasks.validation: one task can't tell":                                               {func(*spec.PromptOptimizer) {}, 10, 1, false},
		"of 501 tasks with 2 attempts each has 1002 rollouts, and at most 1000":               {func(o *spec.PromptOptimizer) { o.ValidationSamples = 2 }, 10, 501, false},
		"optimizer.gepa.merge: ":                                                              {func(o *spec.PromptOptimizer) { o.GEPA = &spec.GEPA{Merge: true} }, 10, 4, false},
		"optimizer.budget.validation: 20 is too small for a single candidate, which needs 22": {func(*spec.PromptOptimizer) {}, 10, 11, true},
		"optimizer.budget.minibatch: 5 is too small for a single candidate, which needs 6":    {func(o *spec.PromptOptimizer) { o.Budget.Minibatch = 5 }, 10, 10, true},
		"optimizer.budget.reflections: 1 is too small for a single candidate, which needs 2":  {func(o *spec.PromptOptimizer) { o.Algorithm = "apo" }, 10, 5, true},
	} {
		_, err := optimize.Of(optimizing(c.change), c.train, c.validation)
		require.ErrorContains(t, err, want)
		if c.budget {
			require.ErrorIs(t, err, search.ErrBudget)
		}
	}
}
