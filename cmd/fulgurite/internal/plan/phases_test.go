package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/spec"
)

func TestEachPhaseIsPlannedWithItsBudget(t *testing.T) {
	t.Parallel()
	s := spec.Spec{
		Agent:    spec.Agent{Func: "f"},
		Prompts:  &spec.Prompts{Texts: []spec.PromptText{{Name: "writer", Text: "Write."}}},
		Tasks:    spec.Tasks{Train: "arithmetic:train:64", Gate: "arithmetic:gate:10", Validation: "arithmetic:test:8"},
		Grader:   spec.Grader{Type: "exact"},
		Training: spec.Training{Steps: 5, TasksPerStep: 2, SamplesPerTask: 3},
		Optimizer: &spec.PromptOptimizer{
			Budget: spec.OptimizerBudget{Minibatch: 60, Validation: 40, Reflections: 8}, Reflector: spec.Reflector{Type: "recorded", File: "/r"},
		},
		Phases: []spec.Phase{{Type: "prompts"}, {Type: "weights", Steps: 2}, {Type: "prompts", Budget: &spec.PhaseBudget{Minibatch: 30}}, {Type: "weights"}},
	}.WithDefaults()
	require.NoError(t, s.Validate())
	p, err := plan.Read(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, []plan.Phase{
		{Number: 1, Type: "prompts", Rollouts: 120, Gates: 2, Reflections: 8}, {Number: 2, Type: "weights", Steps: 2, Rollouts: 12, Gates: 2},
		{Number: 3, Type: "prompts", Rollouts: 90, Gates: 2, Reflections: 8}, {Number: 4, Type: "weights", Steps: 5, Rollouts: 30, Gates: 2},
	}, p.Phases)
	require.Equal(t, []int{7, 42, 8}, []int{p.Steps, p.Rollouts, p.Gates})
	require.Equal(t, (1+2)+(1+5), p.Sizes.Kept, "version 0 and those of the steps, of both trainings")

	s.Phases[2].Budget.Validation = 9
	_, err = plan.Read(t.Context(), s)
	require.ErrorContains(t, err, "phase 3: optimizer.budget.validation: 9 is too small")
}
