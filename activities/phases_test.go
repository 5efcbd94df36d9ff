package activities_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// starter prepares runs in place of their workflows.
type starter struct {
	w         *testEnv
	started   []string
	cancelled []string
}

func (s *starter) StartRun(ctx context.Context, name, workflow string, sp spec.Spec) error {
	s.started = append(s.started, name+" "+workflow)
	text, err := json.Marshal(sp)
	if err != nil {
		return err
	}
	_, err = s.w.coordinator.PrepareRun(ctx, activities.PrepareRunInput{
		Spec: text, Run: name, WorkflowID: name, ExecutionID: "e-" + name, Workflow: workflow,
	})
	return err
}

func (*starter) UnderWay(context.Context, string) (bool, error) { return false, nil }

func (s *starter) CancelRun(_ context.Context, name string) error {
	s.cancelled = append(s.cancelled, name)
	return nil
}

// none is a result of activities that have none.
type none struct{}

func TestAPhaseIsStartedOnceAndItsEndIsRead(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	runs := &starter{w: w}
	w.coordinator.Starter = runs
	for _, split := range []string{"validation", "gate", "test"} {
		w.write(split+".jsonl", `{"id":"`+split+`1","input":"1+1`+split+`","answer":"2"}`+"\n"+`{"id":"`+split+`2","input":"2+1`+split+`","answer":"3"}`+"\n")
	}
	s := w.spec()
	s.Tasks = spec.Tasks{Train: "tasks.jsonl", Validation: "validation.jsonl", Gate: "gate.jsonl", Test: "test.jsonl"}
	s.Prompts = &spec.Prompts{Texts: []spec.PromptText{{Name: "writer", Text: "first"}}}
	s.Optimizer = &spec.PromptOptimizer{Budget: spec.OptimizerBudget{Minibatch: 60, Validation: 60, Reflections: 6}, Reflector: spec.Reflector{Type: "command", Command: []string{"/bin/true"}}}
	s.Phases = []spec.Phase{{Type: spec.PhasePrompts, Budget: &spec.PhaseBudget{Validation: 1}}, {Type: spec.PhaseWeights, Steps: 2}}
	prepare := func() (activities.PreparePhasesResult, error) {
		text, err := json.Marshal(s.Resolve(w.dir))
		require.NoError(t, err)
		return do[activities.PreparePhasesResult](t, w.coordinator.PreparePhases, activities.PreparePhasesInput{Spec: text, Name: "r"})
	}
	_, err := prepare()
	requireRefused(t, err, "phase 1: optimizer.budget.validation: 1 is too small")
	s.Phases[0].Budget = nil
	phases, err := prepare()
	require.NoError(t, err)
	require.Equal(t, []activities.Phase{{Number: 1, Type: "prompts", Run: "r-1-prompts"}, {Number: 2, Type: "weights", Run: "r-2-weights"}}, phases.Phases)

	first := activities.StartPhaseInput{Spec: phases.Spec, Phase: phases.Phases[0]}
	second := activities.StartPhaseInput{Spec: phases.Spec, Phase: phases.Phases[1], From: spec.PhaseStart{Prompts: "r-1-prompts@0"}}
	start := func(in activities.StartPhaseInput) error {
		_, err := do(t, func(ctx context.Context, in activities.StartPhaseInput) (none, error) {
			return none{}, w.coordinator.StartPhase(ctx, in)
		}, in)
		return err
	}
	for range 2 {
		require.NoError(t, start(first))
		require.NoError(t, start(second))
	}
	require.Equal(t, []string{"r-1-prompts PromptWorkflow", "r-2-weights TrainingWorkflow"}, runs.started)
	of, err := w.catalog.Spec(t.Context(), "r-2-weights")
	require.NoError(t, err)
	require.Equal(t, []any{2, "r-1-prompts@0", "first"}, []any{of.Training.Steps, of.Prompts.Version, of.Prompts.Texts[0].Text})

	second.From.Prompts = ""
	requireNoRetry(t, start(second), "phase 2: run r-2-weights is on record (running) with another spec")

	for version, mean := range []float64{0.25, 0.5} {
		require.NoError(t, w.store.PutEvaluation(t.Context(), record.Evaluation{
			Run: "r-2-weights", Policy: model.DefaultPolicy, EvaluationResult: record.EvaluationResult{Kind: record.Gate, Version: version, Mean: mean},
		}))
		require.NoError(t, w.store.Promote(t.Context(), record.Promotion{
			Run: "r-2-weights", Policy: model.DefaultPolicy, DecisionID: string(rune('a' + version)), Version: version, Previous: version - 1, Source: record.SourceGate,
		}))
	}
	require.NoError(t, w.store.FinishRun(t.Context(), "r-2-weights", record.Completed, []byte(`{}`)))
	end, err := do[activities.AwaitPhaseResult](t, w.coordinator.AwaitPhase, activities.AwaitPhaseInput{Run: "r-2-weights"})
	require.NoError(t, err)
	before, after := 0.25, 0.5
	require.Equal(t, activities.AwaitPhaseResult{Status: record.Completed, Promoted: 1, Gate: activities.PhaseRewards{Before: &before, After: &after}}, end)

	require.NoError(t, w.store.FinishRun(t.Context(), "r-1-prompts", record.Failed, record.Failure{Error: "no disk"}.Result()))
	end, err = do[activities.AwaitPhaseResult](t, w.coordinator.AwaitPhase, activities.AwaitPhaseInput{Run: "r-1-prompts"})
	require.NoError(t, err)
	require.Equal(t, activities.AwaitPhaseResult{Status: record.Failed, Error: "no disk", Retry: true}, end)
	end, err = do[activities.AwaitPhaseResult](t, w.coordinator.AwaitPhase, activities.AwaitPhaseInput{Run: "r-3-prompts"})
	require.NoError(t, err)
	require.Equal(t, record.Failed, end.Status, "nothing runs it, and nothing is on record")

	run, err := w.store.Run(t.Context(), "r-1-prompts")
	require.NoError(t, err)
	stone, _, err := w.store.BeginForgetting(t.Context(), run, record.Forgotten{Run: run.Name, What: record.ForgottenRun, By: "me"})
	require.NoError(t, err)
	require.NoError(t, w.store.EndForgetting(t.Context(), stone))
	requireNoRetry(t, start(first), "phase 1: ")
	end, err = do[activities.AwaitPhaseResult](t, w.coordinator.AwaitPhase, activities.AwaitPhaseInput{Run: "r-1-prompts"})
	require.NoError(t, err)
	require.Contains(t, end.Error, "forgotten")
}

func TestOnlyPhasesWorkflowTakesPhases(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	s.Tasks.Gate = "arithmetic:gate:4"
	s.Phases = []spec.Phase{{Type: spec.PhaseWeights}}
	_, err := do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, w.request(s))
	requireRefused(t, err, "phases: each of them is a run; start PhasesWorkflow")
	s.Phases = nil
	text, err := json.Marshal(s.Resolve(w.dir))
	require.NoError(t, err)
	_, err = do[activities.PreparePhasesResult](t, w.coordinator.PreparePhases, activities.PreparePhasesInput{Spec: text, Name: "r"})
	requireRefused(t, err, "phases: missing")
}
