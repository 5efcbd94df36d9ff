package plan_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/golden"
)

const (
	policiesRun = "agent: {func: calculator}\ntasks: {train: \"arithmetic:train:8\"}\ngrader: {type: exact}\ntraining: {steps: 4, tasks_per_step: 2}\n"
	policies    = policiesRun + `
model: {base: base, lora: {rank: 4, targets: [q_proj]}}
policies:
  writer:
    match: [{agent: writer}, {model: big, role: user, position: 1, prefix: "Write\n"}]
    lora: {adapter: adapter}
    optimizer: {learning_rate: 1e-5}
    credit: {assignment: discounted}
    loss: {type: gspo}
    warm_start: {demonstrations: arithmetic, updates: 3}
  checker: {match: [{exact: You check.}]}
  rest: {frozen: true}
`
)

// of makes the plan of a spec's text.
func (s setup) of(text string) (plan.Plan, error) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(s.path("spec.yaml"), []byte(text), 0o600))
	return plan.Make(s.t.Context(), s.path("spec.yaml"))
}

func TestAPlanSaysWhatEachPolicyIs(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	p, err := s.of(policies)
	require.NoError(t, err)
	var names []string
	for _, one := range p.Policies {
		names = append(names, one.Name)
	}
	require.Equal(t, []string{"checker", "rest", "writer"}, names)
	require.Equal(t, []bool{false, true, false}, []bool{p.Policies[0].Frozen, p.Policies[1].Frozen, p.Policies[2].Frozen})
	require.Equal(t, "all other requests", p.Policies[1].Answers)
	require.Equal(t, p.Policies[0].Parameters, p.Policies[1].Parameters)
	require.Equal(t, 4, p.Spec.Policies["writer"].LoRA.Rank, "the adapter says so")
	require.Regexp(t, "^sha256:", p.Spec.Policies["writer"].LoRA.AdapterDigest)

	var out bytes.Buffer
	p.Print(&terminal.Terminal{Out: &out})
	golden.Compare(t, "policies", golden.Steady(out.String(), s.dir))
	require.Contains(t, out.String(), "policies.writer.optimizer.learning_rate is 1e-05, a rate of complete models: an adapter (policies.writer.lora)")
	require.NotContains(t, strings.Join(p.Warnings, "\n"), "training.optimizer.learning_rate")
}

func TestAVersionOfSeveralPoliciesHasOneOfEach(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	one, err := s.of(policiesRun + "model: {base: base, lora: {rank: 4}}\n")
	require.NoError(t, err)
	two, err := s.of(policiesRun + "model: {base: base, lora: {rank: 4}}\npolicies: {a: {match: [{agent: a}]}, b: {}}\n")
	require.NoError(t, err)
	a, b := one.Sizes, two.Sizes
	require.Equal(t, []int64{2 * a.Weights, 2 * a.Version, 2 * a.Sampler}, []int64{b.Weights, b.Version, b.Sampler})
	require.Equal(t, []int64{a.Base, a.Packed, a.Trainer}, []int64{b.Base, b.Packed, b.Trainer}, "they share the base, and are trained one after the other")
	require.Equal(t, a.Kept, b.Kept)
	require.Equal(t, 2*(a.Disk-a.Base-a.Packed), b.Disk-b.Base-b.Packed)

	frozen, err := s.of(policiesRun + "model: {base: base, lora: {rank: 4}}\npolicies: {a: {match: [{agent: a}], frozen: true}, b: {}}\n")
	require.NoError(t, err)
	require.Equal(t, []int64{a.Weights, a.Version, a.Weights}, []int64{frozen.Sizes.Weights, frozen.Sizes.Version, frozen.Sizes.Frozen})
	require.Equal(t, a.Disk+a.Weights, frozen.Sizes.Disk, "it has its version 0 alone")
}

func TestACriticTakesTheDiskOfItsPolicy(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	const adapters = policiesRun + "model: {base: base, lora: {rank: 4}}\n"
	sizes := func(rest string) plan.Sizes {
		p, err := s.of(adapters + rest)
		require.NoError(t, err)
		return p.Sizes
	}
	files := func(z plan.Sizes) int64 { return z.Disk - z.Base - z.Packed }
	plain := sizes("policies: {a: {match: [{agent: a}]}, b: {}}\n")
	both := sizes("policies: {a: {match: [{agent: a}]}, b: {}}\ncredit: {tokens: gae}\n")
	one := sizes("policies: {a: {match: [{agent: a}], credit: {tokens: gae}}, b: {}}\n")
	frozen := sizes("policies: {a: {match: [{agent: a}], frozen: true}, b: {}}\ncredit: {tokens: gae}\n")
	require.Equal(t, 2*files(plain), files(both))
	require.Equal(t, 3*files(plain)/2, files(one))
	require.Equal(t, files(plain)+frozen.Frozen, files(frozen), "b and its critic, and version 0 of a")
	require.Equal(t, []int64{0, plain.Version, plain.Version / 2}, []int64{plain.Critics, both.Critics, one.Critics})
	for _, z := range []plan.Sizes{both, one, frozen} {
		require.Equal(t, []int64{plain.Trainer, int64(plain.Kept)}, []int64{z.Trainer, int64(z.Kept)}, "critics are trained in turns with the policies")
		require.Equal(t, plain.Sampler, z.Sampler, "nothing samples from a critic")
	}
	referred := sizes("policies: {a: {match: [{agent: a}], credit: {kl_in_reward: {weight: 1}}}, b: {}}\n")
	require.Equal(t, plain.Trainer+plain.Weights/2, referred.Trainer, "one version 0 at a time")

	p, err := s.of(adapters + "policies: {a: {match: [{agent: a}], credit: {tokens: gae, kl_in_reward: {weight: 1}}, critic: {passes: 9}}, b: {}}\ncritic: {learning_rate: 0.01}\n")
	require.NoError(t, err)
	var out bytes.Buffer
	p.Print(&terminal.Terminal{Out: &out})
	require.Contains(t, out.String(), "a second model, AdamW at 0.01, 9 passes")
	require.Contains(t, out.String(), "KL to version 0 × 1 less for every token (k1)")
	require.Equal(t, 1, strings.Count(out.String(), "a second model"), "b has none")
	require.Regexp(t, `with [0-9.]+ [kM]B a version for critics`, out.String())
}

func TestFaultsOfAnAdapterNameItsPolicy(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.set("r", 8)
	_, err := s.of(policies)
	require.ErrorContains(t, err, "policy writer: model.lora.adapter: ")
	require.NoError(t, os.RemoveAll(s.path("adapter/adapter_config.json")))
	_, err = s.of(policies)
	require.ErrorContains(t, err, "policies.writer.lora.adapter: ")
}
