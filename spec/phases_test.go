package spec_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/golden"
	"github.com/fulgurite/fulgurite/spec"
)

const inPhases = `
agent: {func: calculator}
prompts:
  texts: [{name: writer, text: Write.}]
tasks: {train: "arithmetic:train", validation: "arithmetic:valid", gate: "arithmetic:gate"}
grader: {type: exact}
sampling: {stop_tokens: ["<end>"]}
model: {base: /m, codec: template, lora: {rank: 4}, warm_start: {demonstrations: arithmetic, updates: 3}}
training: {steps: 7, tasks_per_step: 2, samples_per_task: 4}
algorithm: grpo
optimizer:
  budget: {minibatch: 60, validation: 100, reflections: 10}
  reflector: {type: recorded, file: /r.jsonl}
phases:
  - {type: prompts}
  - {type: weights, steps: 2}
  - {type: prompts, budget: {reflections: 5}}
  - {type: weights}
`

func TestAPhaseHasASpecOfItsOwn(t *testing.T) {
	t.Parallel()
	s := parse(t, strings.ReplaceAll(inPhases, `"arithmetic:valid"`, `"arithmetic:test"`))
	for _, s := range []spec.Spec{s, s.WithDefaults()} {
		require.NoError(t, s.Validate())
		require.NoError(t, s.Trainable())
		require.NoError(t, s.Searchable())
		written := spec.Digest(s)

		first := s.PhaseSpec(1, spec.PhaseStart{})
		require.NoError(t, first.Validate())
		require.Equal(t, s.Optimizer.Budget, first.Optimizer.Budget)
		require.Equal(t, spec.Training{}, first.Training)
		require.Nil(t, first.Model.WarmStart)
		require.Equal(t, "/m", first.Model.Base)

		second := s.PhaseSpec(2, spec.PhaseStart{Prompts: "r-1-prompts@1"})
		require.NoError(t, second.Validate())
		require.Nil(t, second.Optimizer)
		require.Empty(t, second.Tasks.Validation)
		require.Equal(t, 2, second.Training.Steps)
		require.Equal(t, 4, second.Training.SamplesPerTask)
		require.Equal(t, "r-1-prompts@1", second.Prompts.Version)
		require.NotNil(t, second.Model.WarmStart)

		third := s.PhaseSpec(3, spec.PhaseStart{Prompts: "r-1-prompts@1", Weights: "r-2-weights@2"})
		require.NoError(t, third.Validate())
		require.Equal(t, spec.OptimizerBudget{Minibatch: 60, Validation: 100, Reflections: 5}, third.Optimizer.Budget)
		require.Equal(t, "r-2-weights@2", third.Model.Version)
		require.Empty(t, third.WithDefaults().Model.LoRA, "the other run has it")

		fourth := s.PhaseSpec(4, spec.PhaseStart{Prompts: "r-3-prompts@0", Weights: "r-2-weights@2"})
		require.NoError(t, fourth.Validate())
		require.Equal(t, 7, fourth.Training.Steps)
		for i, of := range []spec.Spec{first, second, third, fourth} {
			require.Empty(t, of.Phases, i)
		}
		require.Equal(t, written, spec.Digest(s), "the spec itself does not change")
	}
	require.Equal(t, spec.Digest(s.PhaseSpec(2, spec.PhaseStart{})), spec.Digest(s.WithDefaults().PhaseSpec(2, spec.PhaseStart{})))
	require.Equal(t, "r-2-weights", spec.PhaseName("r", 2, s.Phases[1]))
}

func TestFaultsOfPhasesAreReportedByTheirKeys(t *testing.T) {
	t.Parallel()
	whole := strings.ReplaceAll(inPhases, `"arithmetic:valid"`, `"arithmetic:test"`)
	said := map[string]string{}
	for name, change := range map[string]func(*spec.Spec){
		"type":           func(s *spec.Spec) { s.Phases[0].Type, s.Phases[1].Type = "prompt", "" },
		"unused":         func(s *spec.Spec) { s.Phases[0].Steps, s.Phases[1].Budget = 3, &spec.PhaseBudget{Minibatch: 1} },
		"no steps":       func(s *spec.Spec) { s.Training.Steps = 0 },
		"no budget":      func(s *spec.Spec) { s.Optimizer.Budget.Reflections = 0 },
		"negative":       func(s *spec.Spec) { s.Phases[1].Steps = -1 },
		"no optimizer":   func(s *spec.Spec) { s.Optimizer = nil },
		"only weights":   func(s *spec.Spec) { s.Phases = s.Phases[1:2] },
		"only prompts":   func(s *spec.Spec) { s.Phases = s.Phases[:1] },
		"no gate":        func(s *spec.Spec) { s.Tasks.Gate = "" },
		"no validation":  func(s *spec.Spec) { s.Tasks.Validation = "" },
		"no prompts":     func(s *spec.Spec) { s.Prompts = nil },
		"only evaluates": func(s *spec.Spec) { s.Evaluation.Only = "gate" },
		"name":           func(s *spec.Spec) { s.Name = strings.Repeat("a", 60) },
		"many":           func(s *spec.Spec) { s.Phases = make([]spec.Phase, 21) },
		"server": func(s *spec.Spec) {
			s.Model, s.Sampling = spec.Model{}, spec.Sampling{Server: &spec.Server{Type: "openai", URLs: []string{"http://a"}, Model: "m"}}
		},
		"shared key": func(s *spec.Spec) { s.Grader.Type = "exat" },
	} {
		s := parse(t, whole)
		change(&s)
		err := s.Validate()
		require.Error(t, err, name)
		said[name] = err.Error()
	}
	golden.Table(t, "phases", said)
}
