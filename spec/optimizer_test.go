package spec_test

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/internal/golden"
	"github.com/fulgurite/fulgurite/spec"
)

// optimizing returns the smallest spec that improves prompts.
func optimizing() spec.Spec {
	return spec.Spec{
		Agent:   spec.Agent{Func: "calculator"},
		Prompts: &spec.Prompts{Texts: []spec.PromptText{{Name: "solver", Text: "Compute."}}},
		Optimizer: &spec.PromptOptimizer{
			Budget:    spec.OptimizerBudget{Minibatch: 60, Validation: 200, Reflections: 10},
			Reflector: spec.Reflector{Type: spec.ReflectorOpenAI, URL: "http://127.0.0.1:8000/v1", Model: "m"},
		},
		Tasks:  spec.Tasks{Train: "arithmetic:train", Validation: "arithmetic:test", Gate: "arithmetic:gate"},
		Grader: spec.Grader{Type: spec.GraderExact},
	}
}

func TestAnOptimizerHasTheDefaultsOfItsAlgorithm(t *testing.T) {
	t.Parallel()
	given := optimizing()
	s, err := given.Complete()
	require.NoError(t, err)
	one, yes := 1.0, true
	want := spec.PromptOptimizer{
		Algorithm: "gepa", Budget: given.Optimizer.Budget, Samples: 1, ValidationSamples: 1, Perfect: &one, VerbatimAnswer: 12,
		Reflector: spec.Reflector{Type: "openai", URL: "http://127.0.0.1:8000/v1", Model: "m", Seconds: 120, MaxTokens: 4096, ShownBytes: 60000},
		GEPA:      &spec.GEPA{Minibatch: 3, SkipPerfect: &yes},
	}
	require.Equal(t, &want, s.Optimizer)
	require.Nil(t, given.Optimizer.GEPA, "the caller's copy does not change")
	require.Equal(t, s, s.WithDefaults())
	require.InDelta(t, 0.1, s.Promotion.Significance, 0, "the winner is tested on the gate split")

	given.Optimizer.GEPA = &spec.GEPA{Merge: true}
	require.Equal(t, 5, given.WithDefaults().Optimizer.GEPA.Merges)
	given.Optimizer.Algorithm, given.Optimizer.GEPA = "apo", nil
	require.NoError(t, given.Validate())
	require.Equal(t, &spec.APO{Beam: 4, Branch: 4, Rounds: 3, GradientBatch: 4, ValidationBatch: 16}, given.WithDefaults().Optimizer.APO)
	require.Nil(t, given.WithDefaults().Optimizer.GEPA)
}

func TestWhatAnOptimizerCantUseIsRefusedByKey(t *testing.T) {
	t.Parallel()
	refused := map[string]string{}
	for want, change := range map[string]func(s *spec.Spec, o *spec.PromptOptimizer){
		"prompts.texts: missing":                  func(s *spec.Spec, _ *spec.PromptOptimizer) { s.Prompts = nil },
		"tasks.train: missing":                    func(s *spec.Spec, _ *spec.PromptOptimizer) { s.Tasks.Train = "" },
		"tasks.validation: missing":               func(s *spec.Spec, _ *spec.PromptOptimizer) { s.Tasks.Validation = "" },
		"tasks.validation: the same tasks as":     func(s *spec.Spec, _ *spec.PromptOptimizer) { s.Tasks.Validation = "arithmetic:gate:3" },
		`tasks.validation: "arithmetic" names no`: func(s *spec.Spec, _ *spec.PromptOptimizer) { s.Tasks.Validation = "arithmetic" },
		"tasks.gate: missing":                     func(s *spec.Spec, _ *spec.PromptOptimizer) { s.Tasks.Gate = "" },
		"tasks.validation: unused key":            func(s *spec.Spec, _ *spec.PromptOptimizer) { s.Optimizer = nil },
		"optimizer: unused key":                   func(s *spec.Spec, _ *spec.PromptOptimizer) { s.Evaluation.Only = "gate" },
		"optimizer.algorithm: unknown name":       func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Algorithm = "gpea" },
		"optimizer.budget.minibatch: missing":     func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Budget.Minibatch = 0 },
		"optimizer.budget.validation: missing":    func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Budget.Validation = 0 },
		"optimizer.budget.reflections: missing":   func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Budget.Reflections = 0 },
		"optimizer.budget.reflections: -1":        func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Budget.Reflections = -1 },
		"optimizer.samples: -1":                   func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Samples = -1 },
		"optimizer.validation_samples: 1001":      func(_ *spec.Spec, o *spec.PromptOptimizer) { o.ValidationSamples = 1001 },
		"optimizer.perfect: NaN":                  func(_ *spec.Spec, o *spec.PromptOptimizer) { nan := math.NaN(); o.Perfect = &nan },
		"optimizer.patience: -1":                  func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Patience = -1 },
		"optimizer.verbatim_answer: -1":           func(_ *spec.Spec, o *spec.PromptOptimizer) { o.VerbatimAnswer = -1 },
		"optimizer.gepa.minibatch: -1":            func(_ *spec.Spec, o *spec.PromptOptimizer) { o.GEPA = &spec.GEPA{Minibatch: -1} },
		"optimizer.gepa.merges: unused key":       func(_ *spec.Spec, o *spec.PromptOptimizer) { o.GEPA = &spec.GEPA{Merges: 1} },
		"optimizer.gepa.merges: -1":               func(_ *spec.Spec, o *spec.PromptOptimizer) { o.GEPA = &spec.GEPA{Merge: true, Merges: -1} },
		"optimizer.apo: unused key":               func(_ *spec.Spec, o *spec.PromptOptimizer) { o.APO = &spec.APO{} },
		"optimizer.gepa: unused key":              func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Algorithm, o.GEPA = "apo", &spec.GEPA{} },
		"optimizer.apo.beam: -1":                  func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Algorithm, o.APO = "apo", &spec.APO{Beam: -1} },
		"optimizer.apo.branch: -1":                func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Algorithm, o.APO = "apo", &spec.APO{Branch: -1} },
		"optimizer.apo.rounds: -1":                func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Algorithm, o.APO = "apo", &spec.APO{Rounds: -1} },
		"optimizer.apo.gradient_batch: -1":        func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Algorithm, o.APO = "apo", &spec.APO{GradientBatch: -1} },
		"optimizer.apo.validation_batch: -1": func(_ *spec.Spec, o *spec.PromptOptimizer) {
			o.Algorithm, o.APO = "apo", &spec.APO{ValidationBatch: -1}
		},
		"optimizer.reflector.type: missing":         func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Reflector = spec.Reflector{} },
		"optimizer.reflector.type: unknown name":    func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Reflector.Type = "opennai" },
		"optimizer.reflector.url: ":                 func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Reflector.URL = "" },
		"optimizer.reflector.model: missing":        func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Reflector.Model = "" },
		"optimizer.reflector.model: white space":    func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Reflector.Model = " m" },
		"optimizer.reflector.seconds: -1":           func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Reflector.Seconds = -1 },
		"optimizer.reflector.max_tokens: -1":        func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Reflector.MaxTokens = -1 },
		"optimizer.reflector.shown_bytes: 10":       func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Reflector.ShownBytes = 10 },
		"optimizer.reflector.command: unused key":   func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Reflector.Command = []string{"r"} },
		"optimizer.reflector.directory: unused key": func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Reflector.Directory = "/d" },
		"optimizer.reflector.file: unused key":      func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Reflector.File = "/f" },
		"optimizer.reflector.command: missing":      func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Reflector = spec.Reflector{Type: "command"} },
		"optimizer.reflector.command[0]: empty": func(_ *spec.Spec, o *spec.PromptOptimizer) {
			o.Reflector = spec.Reflector{Type: "command", Command: []string{""}}
		},
		"optimizer.reflector.file: missing":   func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Reflector = spec.Reflector{Type: "recorded"} },
		"optimizer.reflector.url: unused key": func(_ *spec.Spec, o *spec.PromptOptimizer) { o.Reflector.Type, o.Reflector.File = "recorded", "/f" },
		"optimizer.reflector.model: unused key": func(_ *spec.Spec, o *spec.PromptOptimizer) {
			o.Reflector = spec.Reflector{Type: "recorded", File: "/f", Model: "m"}
		},
		"optimizer.reflector.key: unused key": func(_ *spec.Spec, o *spec.PromptOptimizer) {
			o.Reflector = spec.Reflector{Type: "recorded", File: "/f", Key: "K"}
		},
		"optimizer.reflector.seconds: unused key": func(_ *spec.Spec, o *spec.PromptOptimizer) {
			o.Reflector = spec.Reflector{Type: "recorded", File: "/f", Seconds: 1}
		},
		"optimizer.reflector.max_tokens: unused key": func(_ *spec.Spec, o *spec.PromptOptimizer) {
			o.Reflector = spec.Reflector{Type: "recorded", File: "/f", MaxTokens: 1}
		},
		"optimizer.samples: at temperature 0": func(s *spec.Spec, o *spec.PromptOptimizer) { s.Sampling.Temperature, o.Samples = new(float64), 2 },
		"optimizer.validation_samples: at temperature": func(s *spec.Spec, o *spec.PromptOptimizer) {
			s.Sampling.Temperature, o.ValidationSamples = new(float64), 2
		},
	} {
		s := optimizing()
		change(&s, s.Optimizer)
		err := s.Validate()
		require.ErrorContains(t, err, want)
		refused[want] = err.Error()
	}
	golden.Table(t, "refused_optimizers", refused)
}

func TestKeysOfTrainingHaveNoEffectWithAnOptimizer(t *testing.T) {
	t.Parallel()
	high := spec.Optimizer{LearningRate: 1}
	for key, change := range map[string]func(s *spec.Spec){
		"algorithm":                 func(s *spec.Spec) { s.Algorithm = "gspo" },
		"model.warm_start":          func(s *spec.Spec) { s.Model.WarmStart = &spec.WarmStart{Demonstrations: "arithmetic", Updates: 1} },
		"training.steps":            func(s *spec.Spec) { s.Training.Steps = 1 },
		"training.epochs":           func(s *spec.Spec) { s.Training.Epochs = 1 },
		"training.tasks_per_step":   func(s *spec.Spec) { s.Training.TasksPerStep = 3 },
		"training.samples_per_task": func(s *spec.Spec) { s.Training.SamplesPerTask = 3 },
		"training.lag":              func(s *spec.Spec) { s.Training.Lag = 1 },
		"training.dynamic_sampling": func(s *spec.Spec) { s.Training.DynamicSampling = 1 },
		"training.curriculum":       func(s *spec.Spec) { s.Training.Curriculum = &spec.Curriculum{Type: spec.CurriculumBand} },
		"training.passes":           func(s *spec.Spec) { s.Training.Passes = 2 },
		"training.minibatches":      func(s *spec.Spec) { s.Training.Minibatches = 2 },
		"training.optimizer":        func(s *spec.Spec) { s.Training.Optimizer = high },
		"training.keep":             func(s *spec.Spec) { s.Training.Keep = &spec.Keep{} },
		"critic":                    func(s *spec.Spec) { s.Critic = &spec.Critic{} },
		"evaluation.every":          func(s *spec.Spec) { s.Evaluation.Every = 1 },
		"credit.rewards":            func(s *spec.Spec) { s.Credit.Rewards = map[string]float64{"final": 2} },
		"credit.signals":            func(s *spec.Spec) { s.Credit.Signals = map[string]float64{spec.SignalException: -1} },
		"credit.overlong":           func(s *spec.Spec) { s.Credit.Overlong = &spec.Overlong{Tokens: 2, Buffer: 1} },
		"credit.format_penalty":     func(s *spec.Spec) { s.Credit.FormatPenalty = 1 },
		"credit.truncated":          func(s *spec.Spec) { s.Credit.Truncated = spec.TruncatedMask },
		"credit.kl_in_reward":       func(s *spec.Spec) { s.Credit.KLInReward = &spec.KL{Weight: 1} },
		"credit.train_agents":       func(s *spec.Spec) { s.Credit.TrainAgents = "a" },
		"credit.assignment":         func(s *spec.Spec) { s.Credit.Assignment = credit.TurnGAE },
		"credit.tokens":             func(s *spec.Spec) { s.Credit.Tokens = credit.GAE },
		"credit.mean":               func(s *spec.Spec) { s.Credit.Mean = credit.Running },
		"credit.std":                func(s *spec.Spec) { s.Credit.Std = credit.None },
		"credit.leave_one_out":      func(s *spec.Spec) { s.Credit.LeaveOneOut = true },
		"credit.per_agent":          func(s *spec.Spec) { s.Credit.PerAgent = true },
		"credit.whiten":             func(s *spec.Spec) { s.Credit.Whiten = credit.Batch },
		"loss.type":                 func(s *spec.Spec) { s.Loss.Type = credit.LossGSPO },
		"loss.clip_low":             func(s *spec.Spec) { s.Loss.ClipLow = 0.1 },
		"loss.clip_high":            func(s *spec.Spec) { s.Loss.ClipHigh = 0.1 },
		"loss.dual_clip":            func(s *spec.Spec) { s.Loss.DualClip = 3 },
		"loss.aggregation":          func(s *spec.Spec) { s.Loss.Aggregation = credit.Constant },
		"loss.kl":                   func(s *spec.Spec) { s.Loss.KL = &spec.KL{Weight: 1} },
		"loss.entropy":              func(s *spec.Spec) { s.Loss.Entropy = 1 },
		"loss.preference":           func(s *spec.Spec) { s.Loss.Preference = &spec.LossPreference{Beta: 1} },
		"loss.correction":           func(s *spec.Spec) { s.Loss.Correction = credit.MIS },
	} {
		s := optimizing()
		change(&s)
		var faults *spec.Faults
		require.ErrorAs(t, s.Validate(), &faults, key)
		require.Len(t, faults.List, 1, "%s: only the key that was given is reported: %v", key, faults)
		require.Equal(t, key, faults.List[0].Key)
		require.Equal(t, "unused key", faults.List[0].Message, key)
	}
}

func TestAnOptimizerTrainsNoWeights(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, optimizing().Trainable(), "optimizer: a run with it improves prompts and trains no weights")
	s := optimizing()
	s.Sampling.Temperature = new(float64)
	require.NoError(t, s.Validate(), "nothing is trained, so sampling may be greedy")
}

func TestTheReflectorsFilesAreLookedForBesideTheSpec(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const text = minimal + `
prompts: {texts: [{name: a, text: x}]}
optimizer:
  budget: {minibatch: 1, validation: 1, reflections: 1}
  reflector: `
	load := func(reflector string) (spec.Spec, error) {
		s, err := spec.LoadText([]byte(text+reflector+"\n"), "a.yaml", dir)
		require.NoError(t, err)
		return s, s.CheckFiles()
	}
	s, err := load(`{type: command, command: [./reflect.sh]}`)
	require.ErrorContains(t, err, "optimizer.reflector.command: program "+filepath.Join(dir, "reflect.sh")+": no such file")
	require.Equal(t, dir, s.Optimizer.Reflector.Directory)
	require.NoError(t, s.CheckAbsolute())
	s, err = load(`{type: recorded, file: replies.jsonl}`)
	require.ErrorContains(t, err, "optimizer.reflector.file: "+filepath.Join(dir, "replies.jsonl")+": no such file")
	require.Empty(t, s.Optimizer.Reflector.Directory)
	_, err = load(`{type: command, command: [cat], directory: away}`)
	require.ErrorContains(t, err, "optimizer.reflector.directory: "+filepath.Join(dir, "away")+": no such file")

	s = optimizing()
	s.Tasks.Validation = "validation.jsonl"
	require.ErrorContains(t, s.CheckAbsolute(), "tasks.validation: ")
	s = s.Resolve(dir)
	require.Equal(t, filepath.Join(dir, "validation.jsonl"), s.Tasks.Validation)
	require.ErrorContains(t, s.CheckFiles(), "tasks.validation: ")
}

func TestASecretInPlaceOfAKeysNameIsNotRepeated(t *testing.T) {
	t.Parallel()
	s := optimizing()
	s.Optimizer.Reflector.Key = "sk-secret"
	require.ErrorContains(t, s.Validate(), "optimizer.reflector.key: ")
	require.NotContains(t, s.Validate().Error(), "sk-secret")
}

func TestTasksOfAProgramAndOfHarborMayBeTheValidationSplit(t *testing.T) {
	t.Parallel()
	s := optimizing()
	s.Tasks.Validation = "command:validation"
	require.ErrorContains(t, s.Validate(), "tasks.command: missing")
	s.Tasks.Validation = "harbor:/tasks"
	require.ErrorContains(t, s.Validate(), "tasks.validation has tests of its own")
}
