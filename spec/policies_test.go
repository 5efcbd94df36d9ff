package spec_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/internal/golden"
	"github.com/fulgurite/fulgurite/spec"
)

// twoPolicies is a spec with a policy that answers one agent, and one that answers the rest.
const twoPolicies = minimal + `
model: {lora: {rank: 4}}
credit: {mean: batch, std: batch}
loss: {clip_low: 0.1}
policies:
  writer:
    match: [{agent: writer}, {prefix: "You write", position: 0}]
    lora: {rank: 16}
    optimizer: {learning_rate: 1e-3, clip_norm: 2}
    credit: {assignment: discounted}
    loss: {entropy: 0.01}
  rest:
`

// changed returns the spec with two policies with the sections of the policies in place of
// theirs.
func changed(sections string) string {
	return minimal + "policies:\n" + sections
}

func TestPoliciesAreReadFromYAMLAndJSON(t *testing.T) {
	t.Parallel()
	s := parse(t, twoPolicies)
	require.Equal(t, []string{"rest", "writer"}, s.PolicyNames())
	require.Equal(t, spec.Policy{}, s.Policies["rest"])
	position := 0
	require.Equal(t, spec.Policy{
		Match:     []spec.PolicyMatch{{Agent: "writer"}, {Prefix: "You write", Position: &position}},
		LoRA:      &spec.LoRA{Rank: 16},
		Optimizer: &spec.Optimizer{LearningRate: 1e-3, ClipNorm: 2},
		Credit:    &spec.Credit{Assignment: credit.Discounted},
		Loss:      &spec.Loss{Entropy: 0.01},
	}, s.Policies["writer"])
	require.NoError(t, s.Validate())

	text, err := json.Marshal(s)
	require.NoError(t, err)
	again, err := spec.Parse(text, "spec.json")
	require.NoError(t, err)
	require.Equal(t, s, again)
	require.Equal(t, spec.Digest(s), spec.Digest(again))
	require.Nil(t, parse(t, minimal).PolicyNames())
}

func TestPoliciesHaveTheDefaultsOfWhatTheyReplace(t *testing.T) {
	t.Parallel()
	s := parse(t, changed("  a: {match: [{exact: x}, {agent: y}], lora: {}, warm_start: {demonstrations: arithmetic, updates: 3}}\n  b: {frozen: true}\n"))
	full := s.WithDefaults()
	require.Equal(t, []spec.PolicyMatch{{Role: "system", Exact: "x"}, {Agent: "y"}}, full.Policies["a"].Match)
	require.Equal(t, spec.LoRA{Rank: 8, Alpha: 16, Targets: spec.LoRATargets()}, *full.Policies["a"].LoRA)
	require.Equal(t, spec.WarmStart{Demonstrations: "arithmetic", Updates: 3, Batch: 64, LearningRate: 3e-3}, *full.Policies["a"].WarmStart)
	require.Empty(t, s.Policies["a"].Match[0].Role, "the spec that was given does not change")
	require.Zero(t, s.Policies["a"].LoRA.Rank)
	require.Zero(t, s.Policies["a"].WarmStart.Batch)
	require.Equal(t, full, full.WithDefaults())
	require.Equal(t, spec.Digest(s), spec.Digest(full))
}

func TestAPolicyHasASpecOfItsOwn(t *testing.T) {
	t.Parallel()
	s := parse(t, twoPolicies)
	before, err := json.Marshal(s)
	require.NoError(t, err)
	writer, rest := s.ForPolicy("writer"), s.ForPolicy("rest")
	want := s.WithDefaults()
	want.Policies = map[string]spec.Policy{"rest": {}}
	require.Equal(t, want, rest)

	want = s.WithDefaults()
	want.Policies = map[string]spec.Policy{"writer": want.Policies["writer"]}
	want.Model.LoRA = &spec.LoRA{Rank: 16, Alpha: 16, Targets: spec.LoRATargets()}
	want.Training.Optimizer.LearningRate, want.Training.Optimizer.ClipNorm = 1e-3, 2
	want.Credit.Assignment, want.Credit.Discount = credit.Discounted, 0.95
	want.Loss.Entropy = 0.01
	require.Equal(t, want, writer)
	require.InDelta(t, 0.1, writer.Loss.ClipLow, 0, "what the run has stays")
	require.Equal(t, credit.Batch, writer.Credit.Mean)

	require.Equal(t, writer, s.WithDefaults().ForPolicy("writer"), "written defaults don't matter")
	require.Equal(t, writer, writer.ForPolicy("writer"))
	require.Equal(t, s, s.ForPolicy("main"), "the run has no policy of this name")
	after, err := json.Marshal(s)
	require.NoError(t, err)
	require.JSONEq(t, string(before), string(after), "the spec that was given does not change")
}

// A default depends on other keys, and some keys have an effect only together with others.
func TestAPolicyTakesNoKeyThatHasNoEffectWithItsOwn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run, own string
		want     func(t *testing.T, s spec.Spec)
	}{
		"a default": {"credit: {assignment: discounted}", "credit: {assignment: identical}", func(t *testing.T, s spec.Spec) {
			t.Helper()
			require.Zero(t, s.Credit.Discount)
		}},
		"another default": {"loss: {correction: mis}", "loss: {correction: geometric}", func(t *testing.T, s spec.Spec) {
			t.Helper()
			require.Equal(t, []float64{0.99, 1.01}, []float64{s.Loss.ImportanceFloor, s.Loss.ImportanceCap})
		}},
		"a written key": {"loss: {clip_low: 0.1, entropy: 0.5}", "loss: {type: importance_sampling}", func(t *testing.T, s spec.Spec) {
			t.Helper()
			require.Zero(t, s.Loss.ClipLow)
			require.InDelta(t, 0.5, s.Loss.Entropy, 0)
		}},
		"a schedule": {"", "optimizer: {schedule: constant}", func(t *testing.T, s spec.Spec) {
			t.Helper()
			require.Zero(t, s.Training.Optimizer.FinalFraction)
		}},
		"an algorithm": {"algorithm: gspo", "loss: {type: ppo_clip}", func(t *testing.T, s spec.Spec) {
			t.Helper()
			require.Equal(t, []float64{0.2, 0.28}, []float64{s.Loss.ClipLow, s.Loss.ClipHigh})
			require.Equal(t, credit.SequenceMean, s.Loss.Aggregation)
		}},
		"an algorithm's key": {"algorithm: rloo", "credit: {mean: batch}", func(t *testing.T, s spec.Spec) {
			t.Helper()
			require.False(t, s.Credit.LeaveOneOut)
		}},
		"a judge": {"credit: {assignment: judge, judge: {url: \"http://a/v1\", model: m}}", "credit: {assignment: identical}", func(t *testing.T, s spec.Spec) {
			t.Helper()
			require.Nil(t, s.Credit.Judge)
		}},
	} {
		s := parse(t, changed("  a: {match: [{agent: a}], "+c.own+"}\n  b:\n")+c.run+"\n")
		require.NoError(t, s.Validate(), name)
		c.want(t, s.ForPolicy("a"))
		require.Equal(t, s.ForPolicy("a"), s.WithDefaults().ForPolicy("a"), name)
	}
}

func TestFaultsOfPoliciesAreReportedByTheirKeys(t *testing.T) {
	t.Parallel()
	said := map[string]string{}
	for name, text := range map[string]string{
		"one":              "  a:\n",
		"many":             "  " + strings.Join(strings.Split("abcdefghijklmnopq", ""), ": {match: [{agent: x}]}\n  ") + ":\n",
		"names":            "  main: {match: [{agent: a}]}\n  critic: {match: [{agent: b}]}\n  prompts: {match: [{agent: c}]}\n  Ab: {match: [{agent: d}]}\n  9: {match: [{agent: e}]}\n",
		"no match":         "  a:\n  b: {frozen: true}\n  c:\n",
		"empty match":      "  a: {match: [{}]}\n  b:\n",
		"match":            "  a: {match: [{exact: x, prefix: y, role: tool, position: -1}, {agent: z, role: user, position: 2}]}\n  b:\n",
		"same match":       "  a: {match: [{exact: x, position: 1}, {exact: x, role: developer, position: 1}]}\n  b: {match: [{exact: x, role: system, position: 1}]}\n",
		"frozen":           "  a: {frozen: true, match: [{agent: a}], optimizer: {beta1: 0.5}, credit: {mean: batch}, loss: {entropy: 1}}\n  b:\n",
		"all frozen":       "  a: {frozen: true, match: [{agent: a}]}\n  b: {frozen: true}\n",
		"lora":             "  a: {match: [{agent: a}], lora: {rank: 5000, targets: [q]}}\n  b:\n",
		"warm start":       "  a: {match: [{agent: a}], warm_start: {updates: 3}}\n  b:\n",
		"optimizer":        "  a: {match: [{agent: a}], optimizer: {learning_rate: -1, schedule: slow, moments: int8}}\n  b:\n",
		"credit":           "  a: {match: [{agent: a}], credit: {assignment: dicounted, discount: 2, rewards: {final: 0}}}\n  b:\n",
		"credit of a run":  "  a: {match: [{agent: a}], credit: {train_agents: x, judge: {url: \"http://a/v1\", model: m}}}\n  b:\n",
		"kl in reward":     "  a: {match: [{agent: a}], credit: {kl_in_reward: {weight: -1, estimator: k9}}}\n  b: {credit: {kl_in_reward: {weight: 1}, combine: separate}}\n",
		"judge":            "  a: {match: [{agent: a}], credit: {assignment: judge}}\n  b:\n",
		"critic":           "  a: {match: [{agent: a}], credit: {tokens: gae}, critic: {passes: 1000}}\n  b: {critic: {learning_rate: 1e-3}}\n",
		"frozen critic":    "  a: {match: [{agent: a}], frozen: true, critic: {passes: 2}}\n  b: {credit: {tokens: gae}}\n",
		"flat with critic": "  a: {match: [{agent: a}], credit: {tokens: gae}}\n  b:\ntraining: {steps: 1, dynamic_sampling: 1}\n",
		"loss":             "  a: {match: [{agent: a}], loss: {type: importance_sampling, clip_low: 0.1}}\n  b:\n",
		"another key":      "  a: {match: [{agent: a}], credit: {assignment: value_difference}}\n  b:\ntraining: {steps: 1, tasks_per_step: 1}\n",
		"not finite":       "  a: {match: [{agent: a}], optimizer: {learning_rate: .nan}}\n  b: {loss: {entropy: .inf}}\n",
		"written critic":   "  a: {match: [{agent: a}]}\n  b:\ncritic: {passes: 2}\n",
		"run's credit":     "  a: {match: [{agent: a}]}\n  b:\ncredit: {train_agents: x}\n",
		"server":           "  a: {match: [{agent: a}]}\n  b:\nsampling: {server: {type: openai, urls: [\"http://a\"], model: m}}\n",
		"of both":          "  a: {match: [{agent: a}]}\n  b:\ncredit: {discount: 2}\n",
		"unknown keys":     "  a: {matches: [], match: [{agnet: a}], lora: {ranks: 2}, optimizer: {lr: 1}, credit: {per_agents: true}, loss: {types: a}, warm_start: {update: 1}}\n  b: {froze: true}\n",
		"wrong kinds":      "  a: 3\n  b: {match: {agent: a}, frozen: 1, optimizer: [a]}\n",
		"a list":           "  [a, b]\n",
		"zeros":            "  a: {match: [{agent: \"\", position: 0, prefix: x}], lora: {rank: 0}, warm_start: {updates: 0, batch: 0}, optimizer: {learning_rate: 0, weight_decay: 0}, credit: {per_agent: false, mean: \"\"}, loss: {entropy: 0}}\n  b.c: {frozen: false, loss: {dual_clip: 0}}\n",
		"search":           "  a: {match: [{agent: a}]}\n  b:\noptimizer: {budget: {minibatch: 1, validation: 10, reflections: 1}, reflector: {type: recorded, file: /r}}\n",
		"given twice":      "  a: {match: [{agent: a}]}\n  a: {match: [{agent: b}]}\n",
		"no such adapter":  "  a: {match: [{agent: a}], lora: {adapter: missing}, warm_start: {demonstrations: gone.jsonl, updates: 1}}\n  b:\n",
		"nothing to train": "  a: {match: [{agent: a}]}\n  b:\nevaluation: {only: gate}\n",
	} {
		dir := t.TempDir()
		text = changed(text)
		if strings.Count(text, "\ntraining:") > 1 {
			text = strings.Replace(text, "training: {steps: 3}\n", "", 1)
		}
		s, err := spec.LoadText([]byte(text), "a.yaml", dir)
		if err == nil {
			_, err = s.Complete()
		}
		require.Error(t, err, name)
		said[name] = strings.ReplaceAll(err.Error(), dir, "DIR")
	}
	s := parse(t, strings.ReplaceAll(inPhases, `"arithmetic:valid"`, `"arithmetic:test"`)+"policies:\n  a: {match: [{agent: a}]}\n  b:\n")
	said["phases"] = s.Validate().Error()
	golden.Table(t, "policies", said)
}

// A policy has a critic if its own credit needs one, whatever the run's needs.
func TestAPolicyHasACriticIfItsCreditNeedsOne(t *testing.T) {
	t.Parallel()
	of := func(s spec.Spec, policy string) spec.Critic {
		c := s.ForPolicy(policy).Critic
		require.NotNil(t, c, policy)
		return *c
	}
	s := parse(t, changed("  a: {match: [{agent: a}], critic: {passes: 7}}\n  b: {match: [{agent: b}], credit: {tokens: uniform}}\n  c: {frozen: true}\n")+
		"credit: {tokens: gae, kl_in_reward: {weight: 0.1}}\ncritic: {learning_rate: 0.5, clip: 0.2}\n")
	require.NoError(t, s.Validate())
	require.Equal(t, spec.Critic{LearningRate: 0.5, Passes: 7, Clip: 0.2}, of(s, "a"))
	require.Nil(t, s.ForPolicy("b").Critic)
	require.Equal(t, credit.None, s.ForPolicy("b").Credit.Whiten)
	require.Equal(t, []string{"a"}, s.CriticPolicies("main"), "c is frozen")
	require.True(t, s.HasCritic())
	require.True(t, s.HasKLInReward())
	require.InDelta(t, 0.2, s.Critic.Clip, 0)
	require.Zero(t, s.Critic.Passes, "the spec that was given does not change")
	require.Equal(t, s.ForPolicy("a"), s.WithDefaults().ForPolicy("a"))
	require.Equal(t, s.ForPolicy("a"), s.ForPolicy("a").ForPolicy("a"))
	require.Equal(t, spec.Critic{Passes: 7}, *s.Policies["a"].Critic)

	s = parse(t, changed("  a: {match: [{agent: a}], credit: {tokens: gae, kl_in_reward: {weight: 2, estimator: k2}}}\n  b:\n"))
	require.NoError(t, s.Validate())
	require.Equal(t, spec.Critic{LearningRate: 1e-3, Passes: 4}, of(s, "a"))
	require.Equal(t, []string{"a"}, s.CriticPolicies("main"))
	require.Equal(t, spec.KL{Weight: 2, Estimator: credit.KL2}, *s.ForPolicy("a").Credit.KLInReward)
	require.Nil(t, s.ForPolicy("b").Credit.KLInReward)
	require.True(t, s.HasKLInReward())
	s.Critic = &spec.Critic{Passes: 9}
	require.NoError(t, s.Validate(), "it is for the policy that needs one")
	require.Equal(t, 9, of(s, "a").Passes)

	one := parse(t, minimal)
	require.False(t, one.HasCritic())
	require.Empty(t, one.CriticPolicies("main"))
	one.Credit.Tokens = credit.GAE
	require.Equal(t, []string{"main"}, one.WithDefaults().CriticPolicies("main"))
	preset := parse(t, changed("  a: {match: [{agent: a}]}\n  b:\n")+"algorithm: ppo\n")
	require.NoError(t, preset.Validate())
	require.Equal(t, []string{"a", "b"}, preset.CriticPolicies("main"))
}

func TestSetChangesTheCriticOfAPolicy(t *testing.T) {
	t.Parallel()
	s := parse(t, changed("  a: {match: [{agent: a}], critic: {learning_rate: 0.1}}\n  b:\n")+"credit: {tokens: gae}\n")
	const rate = "policies.a.critic.learning_rate"
	require.Subset(t, s.SettableKeys(), []string{rate, "critic.learning_rate"})
	require.NotContains(t, s.SettableKeys(), "policies.a.critic.clip")
	require.NotContains(t, s.SettableKeys(), "policies.b.critic.learning_rate")
	set, err := s.Set(map[string]float64{rate: 0.2, "critic.learning_rate": 0.3})
	require.NoError(t, err)
	require.InDelta(t, 0.2, set.ForPolicy("a").Critic.LearningRate, 0)
	require.InDelta(t, 0.3, set.ForPolicy("b").Critic.LearningRate, 0)
	require.InDelta(t, 0.1, s.Policies["a"].Critic.LearningRate, 0, "the original stays")
}

func TestPathsOfPoliciesAreRelativeToTheSpec(t *testing.T) {
	t.Parallel()
	s := parse(t, changed("  a: {match: [{agent: a}], lora: {adapter: a}, warm_start: {demonstrations: d.jsonl, updates: 1}}\n  b:\n"))
	require.ErrorContains(t, s.CheckAbsolute(), `policies.a.lora.adapter: "a" is relative`)
	require.ErrorContains(t, s.CheckAbsolute(), `policies.a.warm_start.demonstrations: "d.jsonl" is relative`)
	at := s.Resolve("/x")
	require.Equal(t, filepath.FromSlash("/x/a"), at.Policies["a"].LoRA.Adapter)
	require.Equal(t, filepath.FromSlash("/x/d.jsonl"), at.Policies["a"].WarmStart.Demonstrations)
	require.Equal(t, "a", s.Policies["a"].LoRA.Adapter, "the spec that was given does not change")
	require.Equal(t, "d.jsonl", s.Policies["a"].WarmStart.Demonstrations)
}

func TestSetChangesTheOptimizerOfAPolicy(t *testing.T) {
	t.Parallel()
	s := parse(t, twoPolicies)
	const rate = "policies.writer.optimizer.learning_rate"
	require.Subset(t, s.SettableKeys(), []string{rate, "policies.writer.optimizer.clip_norm", "training.optimizer.learning_rate"})
	require.NotContains(t, s.SettableKeys(), "policies.writer.optimizer.weight_decay", "the policy has that of the run")
	require.NotContains(t, s.SettableKeys(), "policies.rest.optimizer.learning_rate")
	require.InDelta(t, 1e-3, s.SettableValues()[rate], 0)

	set, err := s.Set(map[string]float64{rate: 1e-4, "training.optimizer.learning_rate": 2e-4})
	require.NoError(t, err)
	require.InDelta(t, 1e-4, set.ForPolicy("writer").Training.Optimizer.LearningRate, 0)
	require.InDelta(t, 2e-4, set.ForPolicy("rest").Training.Optimizer.LearningRate, 0)
	require.InDelta(t, 1e-3, s.Policies["writer"].Optimizer.LearningRate, 0, "the original stays")

	for value, want := range map[float64]string{
		0: rate + ": 0 is not possible: the policy would have the value of the run; give another number", -1: rate + ": -1 is not possible", math.Inf(1): "policies.writer.optimizer: a number that is not finite",
	} {
		_, err = s.Set(map[string]float64{rate: value})
		require.ErrorContains(t, err, want)
	}
	_, err = s.Set(map[string]float64{"policies.rest.optimizer.learning_rate": 1})
	require.ErrorContains(t, err, "policies.rest.optimizer.learning_rate: can't be set while this run is under way; one of ")
}

func TestTheExampleOfPoliciesIsValid(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile(docsFile)
	require.NoError(t, err)
	_, section, found := strings.Cut(string(docs), "### Policies\n")
	require.True(t, found)
	_, section, _ = strings.Cut(section, "```yaml\n")
	section, _, _ = strings.Cut(section, "```")
	s := parse(t, minimal+section)
	require.NoError(t, s.Validate())
	require.Equal(t, []string{"checker", "helper", "writer"}, s.PolicyNames())
}

func TestAPhaseThatBeginsWithAVersionKeepsNoModelsOfPolicies(t *testing.T) {
	t.Parallel()
	s := spec.Spec{
		Agent: spec.Agent{Func: "f"}, Tasks: spec.Tasks{Train: "arithmetic:train", Gate: "arithmetic:gate"}, Grader: spec.Grader{Type: "exact"},
		Policies: map[string]spec.Policy{"writer": {Match: []spec.PolicyMatch{{Agent: "w"}}, LoRA: &spec.LoRA{Rank: 4}}, "rest": {}},
		Phases:   []spec.Phase{{Type: spec.PhaseWeights, Steps: 1}, {Type: spec.PhaseWeights, Steps: 1}},
	}
	require.NoError(t, s.Validate())
	second := s.PhaseSpec(2, spec.PhaseStart{Weights: "demo@1"})
	require.NoError(t, second.Validate())
	require.Nil(t, second.Policies["writer"].LoRA)
	require.NotEmpty(t, second.Policies["writer"].Match)
	require.NotNil(t, s.Policies["writer"].LoRA, "the caller's copy does not change")
}

// paired returns a spec with two policies.
func paired() spec.Spec {
	s := valid()
	s.Policies = map[string]spec.Policy{"checker": {}, "writer": {Match: []spec.PolicyMatch{{Agent: "writer"}}}}
	return s
}

func TestPoliciesArePromotedAloneOnlyIfThatDiffers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*spec.Spec)
		fault  string
	}{
		"two":         {func(*spec.Spec) {}, ""},
		"no policies": {func(s *spec.Spec) { s.Policies = nil }, "promotion.alone: the run has one policy"},
		"one trained": {func(s *spec.Spec) {
			writer := s.Policies["writer"]
			writer.Frozen = true
			s.Policies["writer"] = writer
		}, "promotion.alone: only policies.checker is trained"},
		"approval": {func(s *spec.Spec) { s.Promotion.Approval = true }, "promotion.alone: not with promotion.approval"},
		"no gate":  {func(s *spec.Spec) { s.Tasks.Gate, s.Evaluation.Every = "", 0 }, "promotion.alone: promotion has no split to compare on"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := paired()
			s.Tasks.Gate, s.Promotion.Alone = "arithmetic:gate:5", true
			test.change(&s)
			err := s.WithDefaults().Validate()
			if test.fault == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.fault)
		})
	}
}

func TestEvaluationsOfPoliciesShareNoTask(t *testing.T) {
	t.Parallel()
	s := paired()
	require.Equal(t, 0, s.FirstTask("writer", 5), "promoted together, all begin with 0")
	s.Promotion.Alone = true
	require.Equal(t, []int{0, 5, 10, 15}, []int{s.FirstTask("checker", 5), s.FirstTask("writer", 5), s.FirstBaselineTask("checker", 5), s.FirstBaselineTask("writer", 5)})
	require.Equal(t, 0, s.FirstTask("main", 5), "version 0 of all together")
}

func TestTheOrdinalOfATaskSaysWhichPolicyIsEvaluated(t *testing.T) {
	t.Parallel()
	s := spec.Spec{Policies: map[string]spec.Policy{"b": {}, "a": {}, "frozen": {Frozen: true}}}
	_, _, ok := s.PolicyOfTask(0, 5)
	require.False(t, ok, "all are evaluated together")
	s.Promotion.Alone = true
	for _, policy := range []string{"a", "b"} {
		for i := range 5 {
			got, baseline, ok := s.PolicyOfTask(s.FirstTask(policy, 5)+i, 5)
			require.True(t, ok)
			require.Equal(t, policy, got)
			require.False(t, baseline)
			got, baseline, ok = s.PolicyOfTask(s.FirstBaselineTask(policy, 5)+i, 5)
			require.True(t, ok)
			require.Equal(t, policy, got)
			require.True(t, baseline)
		}
	}
	for _, task := range []int{-1, 20} {
		_, _, ok = s.PolicyOfTask(task, 5)
		require.False(t, ok, task)
	}
}
