package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
)

// Where a spec departs from what is known to work, plan says what to give instead.
func TestDeparturesFromWhatIsKnownToWork(t *testing.T) {
	t.Parallel()
	of := func(change func(*spec.Spec)) []string {
		s := spec.Spec{Training: spec.Training{SamplesPerTask: 8}, Model: spec.Model{LoRA: &spec.LoRA{Rank: 16}}}
		s.Training.Optimizer.LearningRate = 3e-4
		s = s.WithDefaults()
		change(&s)
		return departures(s)
	}
	require.Empty(t, of(func(*spec.Spec) {}))

	slow := of(func(s *spec.Spec) { s.Training.Optimizer.LearningRate = 1e-5 })
	require.Len(t, slow, 1)
	require.Contains(t, slow[0], "training.optimizer.learning_rate is 1e-05, a rate of complete models")
	require.Empty(t, of(func(s *spec.Spec) { s.Training.Optimizer.LearningRate, s.Model.LoRA = 1e-5, nil }), "a complete model learns at that rate")

	pairs := of(func(s *spec.Spec) { s.Training.SamplesPerTask = 2 })
	require.Len(t, pairs, 1)
	require.Contains(t, pairs[0], "training.samples_per_task is 2")
	require.Empty(t, of(func(s *spec.Spec) { s.Training.SamplesPerTask, s.Credit.Std = 2, "none" }))
}

// A search whose reflector is the policy itself is warned of, if the policy is known to be small.
func TestASmallPolicyThatReflectsForItselfIsWarnedOf(t *testing.T) {
	t.Parallel()
	const small, large = 494_032_768, 7_615_616_512
	server := &spec.Server{URLs: []string{"http://10.0.0.1:8000", "http://10.0.0.2:8000"}, Model: "qwen"}
	for name, c := range map[string]struct {
		base, url, model string
		server           *spec.Server
		parameters       int
		want             string
	}{
		"a version":                  {"/m/Qwen2.5-0.5B", "http://127.0.0.1:8234/v1", "demo@promoted", nil, small, `"demo@promoted" seems to be a version that a gateway serves`},
		"a version of a large model": {"/m/Qwen2.5-7B", "http://127.0.0.1:8234/v1", "demo@promoted", nil, large, ""},
		"a model of a provider":      {"/m/Qwen2.5-0.5B", "https://models.example/v1", "claude@20250101", nil, small, ""},
		"the name of the base":       {"/m/Qwen2.5-0.5B", "https://models.example/v1", "Qwen/Qwen2.5-0.5B", nil, small, `"Qwen/Qwen2.5-0.5B" has the name of model.base`},
		"another model":              {"/m/Qwen2.5-0.5B", "https://models.example/v1", "Qwen/Qwen2.5-72B", nil, small, ""},
		"the sampling server":        {"/m/Qwen2.5-0.5B", "http://10.0.0.2:8000/v1", "qwen", server, small, `"qwen" is the model of sampling.server`},
		"another server":             {"/m/Qwen2.5-0.5B", "http://10.0.0.3:8000/v1", "qwen", server, small, ""},
		"a size that is not known":   {spec.BaseTiny, "http://10.0.0.2:8000/v1", "qwen", server, 107_520, ""},
		"the built-in model":         {spec.BaseTiny, "http://127.0.0.1:8234/v1", "demo@3", nil, 107_520, "107520 parameters"},
		"a command":                  {"/m/Qwen2.5-0.5B", "", "", nil, small, ""},
	} {
		s := spec.Spec{Model: spec.Model{Base: c.base}, Sampling: spec.Sampling{Server: c.server}, Optimizer: &spec.PromptOptimizer{Reflector: spec.Reflector{URL: c.url, Model: c.model}}}
		got := Plan{Spec: s, Parameters: c.parameters}.reflectsForItself()
		if c.want == "" {
			require.Empty(t, got, name)
		} else {
			require.Contains(t, got, c.want, name)
		}
	}
	require.Empty(t, Plan{Parameters: small}.reflectsForItself(), "a run that trains")
}

// A run that learns from conversations is warned of what keeps it from learning.
func TestARunThatCannotLearnFromUseIsWarnedOf(t *testing.T) {
	t.Parallel()
	of := func(change func(*spec.Spec)) []string {
		s := spec.Spec{Traffic: &spec.Traffic{Record: spec.RecordAll, Train: &spec.TrafficTraining{Objective: spec.ObjectivePreference}}}
		change(&s)
		return trafficWarnings(s.WithDefaults())
	}
	single := of(func(*spec.Spec) {})
	require.Len(t, single, 1)
	require.Contains(t, single[0], "loss.preference.beta has almost no effect")
	require.Empty(t, of(func(s *spec.Spec) { s.Training.Passes = 2 }))
	require.Empty(t, of(func(s *spec.Spec) { s.Loss.Preference = &spec.LossPreference{Reference: spec.ReferenceFirst} }))
	require.Empty(t, of(func(s *spec.Spec) { s.Traffic.Train.Objective = spec.ObjectiveReward }))
	silent := of(func(s *spec.Spec) { s.Traffic.Record, s.Training.Passes = "", 2 })
	require.Len(t, silent, 1)
	require.Contains(t, silent[0], "traffic.record is none")
}
