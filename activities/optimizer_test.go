package activities_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

func optimizing(w *testEnv) spec.Spec {
	s := w.spec()
	s.Training, s.Evaluation.Every = spec.Training{}, 0
	s.Tasks = spec.Tasks{Train: "arithmetic:train:8", Validation: "arithmetic:test:6", Gate: "arithmetic:gate:5"}
	s.Prompts = &spec.Prompts{Texts: []spec.PromptText{{Name: "solver", Text: "Compute."}}}
	s.Optimizer = &spec.PromptOptimizer{
		Budget:    spec.OptimizerBudget{Minibatch: 6, Validation: 12, Reflections: 1},
		Reflector: spec.Reflector{Type: spec.ReflectorOpenAI, URL: "http://127.0.0.1:1/v1", Model: "m"},
	}
	return s
}

func TestARunThatImprovesPromptsHasAValidationSplit(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	got := w.prepare(optimizing(w))
	require.Equal(t, 6, got.Splits[record.Validation].Count)
	require.NotEmpty(t, got.Splits[record.Validation].Digest)
	require.Equal(t, 8, got.Splits[record.Train].Count)
}

func TestABudgetForNoCandidateIsRefusedWithTheNumbers(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(s *spec.Spec){
		"optimizer.budget.validation: 11 is too small for a single candidate, which needs 12": func(s *spec.Spec) { s.Optimizer.Budget.Validation = 11 },
		"tasks.validation: one task can't tell":                                               func(s *spec.Spec) { s.Tasks.Validation = "arithmetic:test:1" },
	} {
		w := newTestEnv(t)
		s := optimizing(w)
		change(&s)
		_, err := do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, w.request(s))
		requireRefused(t, err, want)
	}
}

func TestCandidatesAreTriedOnTheTasksOfTheirKind(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(optimizing(w))
	run := w.runner(w.serve(w.gateway()), func(_ context.Context, task agent.Task, _ agent.Env) (string, error) { return task.Input, nil })
	for kind, split := range map[record.Kind]string{record.Minibatch: "train", record.Validation: "test"} {
		in := rollout(0, 0)
		in.Rollout.Kind, in.Index = kind, 5
		_, err := do[activities.RunAgentResult](t, run.RunAgent, in)
		require.NoError(t, err)
		require.Equal(t, split+"-000005", w.attempt(at(in, 1)).TaskID)
	}
}

// A stopped search that is reset may go on and end with another winner.
func TestASecondWinnerIsAVersionOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := optimizing(w)
	s.Optimizer.Budget = spec.OptimizerBudget{Minibatch: 60, Validation: 60, Reflections: 9}
	w.prepare(s)
	step := func(stop bool) activities.StepSearchResult {
		out, err := do[activities.StepSearchResult](t, w.coordinator.StepSearch, activities.StepSearchInput{Run: "demo", Stop: stop})
		require.NoError(t, err)
		return out
	}
	best := func(candidates int) { // every proposal is better than the one before
		for out := step(false); out.Progress.Candidates < candidates; out = step(false) {
			for _, r := range out.Requests {
				a := search.Answer{Request: r.ID, Text: fmt.Sprintf("Compute, text %d.", r.Number)}
				if r.Kind == search.Evaluate {
					a.Text = ""
					for _, task := range r.Tasks {
						score := float64(r.Number) / 1000
						a.Results = append(a.Results, search.Result{Task: task, Score: &score})
					}
				}
				data, err := json.Marshal(a)
				require.NoError(t, err)
				_, _, err = w.store.PutSearchAnswer(t.Context(), record.SearchAnswer{Run: "demo", Request: r.ID, Answer: data})
				require.NoError(t, err)
			}
		}
	}
	best(2)
	first := step(true).End
	require.Equal(t, 1, first.Version)
	require.Equal(t, first, step(true).End, "the same again")
	best(3)
	second := step(true).End
	require.Equal(t, 2, second.Version)
	require.NotEqual(t, first.Prompts, second.Prompts)
	v, err := w.store.PromptVersion(t.Context(), "demo", 1)
	require.NoError(t, err)
	require.Equal(t, first.Prompts, v.Prompts, "it never changes")
}
