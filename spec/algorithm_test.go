package spec_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec"
)

func with(change func(*spec.Spec)) spec.Spec {
	s := valid()
	change(&s)
	return s
}

func TestEveryAlgorithmIsAWholeSpec(t *testing.T) {
	t.Parallel()
	digests := map[string]string{}
	for _, name := range spec.Algorithms() {
		s := with(func(s *spec.Spec) { s.Algorithm = name })
		if name == "gdpo" {
			s.Credit.Rewards = map[string]float64{"final": 1, "brevity": 0.2}
		}
		require.NoError(t, s.Validate(), name)
		d := s.WithDefaults()
		require.Equal(t, d, d.WithDefaults(), name)
		require.Equal(t, d.Credit.UsesCritic(), d.Critic != nil, name)
		digest := spec.Digest(s)
		require.Empty(t, digests[digest], "%s is %s", name, digests[digest])
		digests[digest] = name
		d.Algorithm = ""
		require.Equal(t, digest, spec.Digest(d), "%s is what it expands to", name)
	}
}

func TestPartsOfAnAlgorithmCanBeReplaced(t *testing.T) {
	t.Parallel()
	s := with(func(s *spec.Spec) {
		s.Algorithm, s.Credit.Assignment, s.Loss.Type, s.Loss.Aggregation = "dapo", "gigpo", "gspo", "sequence_mean"
	})
	require.NoError(t, s.Validate())
	d := s.WithDefaults()
	require.Equal(t, credit.GiGPO, d.Credit.Assignment)
	require.Equal(t, credit.SequenceMean, d.Loss.Aggregation)
	require.InDelta(t, 4e-4, d.Loss.ClipHigh, 0, "another loss has bounds of its own")
	require.Equal(t, credit.Group, d.Credit.Std)

	valued := with(func(s *spec.Spec) { s.Algorithm, s.Credit.Assignment = "rloo", "value_difference" })
	require.NoError(t, valued.Validate(), "estimates replace every comparison")
	require.Equal(t, credit.None, valued.WithDefaults().Credit.Mean)

	free := with(func(s *spec.Spec) { s.Algorithm, s.Credit.Mean = "rloo", "batch" })
	require.NoError(t, free.Validate(), "leave-one-out goes with the group's mean")
}

func TestDrGRPODividesByTheMostTokensOfAnAttempt(t *testing.T) {
	t.Parallel()
	s := with(func(s *spec.Spec) { s.Algorithm = "dr_grpo" }).WithDefaults()
	require.Equal(t, 8*24, s.Loss.Length)
	s = with(func(s *spec.Spec) { s.Algorithm, s.Agent.Limits.Tokens = "dr_grpo", 100 }).WithDefaults()
	require.Equal(t, 100, s.Loss.Length)
}

func TestContradictionsOfCreditAndLossAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*spec.Spec)
		want   string
	}{
		"unknown algorithm": {func(s *spec.Spec) { s.Algorithm = "grop" }, "algorithm: unknown name"},
		"ppo call by call":  {func(s *spec.Spec) { s.Algorithm, s.Credit.Assignment = "ppo", "gigpo" }, `credit.assignment: credit.tokens "gae" gives every token its own advantage`},
		"idle critic":       {func(s *spec.Spec) { s.Critic = &spec.Critic{} }, "critic: unused key"},
		"bad critic":        {func(s *spec.Spec) { s.Algorithm, s.Critic = "ppo", &spec.Critic{LearningRate: 2} }, "critic.learning_rate: 2 is not possible"},
		"lambda alone":      {func(s *spec.Spec) { s.Credit.Lambda = 0.9 }, "credit.lambda: unused key"},
		"weight alone":      {func(s *spec.Spec) { s.Credit.StepWeight = 0.9 }, "credit.step_weight: unused key"},
		"one reward apart":  {func(s *spec.Spec) { s.Algorithm = "gdpo" }, "credit.combine: unused key"},
		"weightless reward": {func(s *spec.Spec) { s.Credit.Rewards = map[string]float64{"final": 0} }, "credit.rewards.final: 0 is not possible"},
		"infinite reward":   {func(s *spec.Spec) { s.Credit.Rewards = map[string]float64{"a": math.Inf(1)} }, "credit.rewards.a: +Inf is not possible"},
		"unknown signal":    {func(s *spec.Spec) { s.Credit.Signals = map[string]float64{"tool_eror": -1} }, "credit.signals.tool_eror: unknown name"},
		"buffer over limit": {func(s *spec.Spec) { s.Credit.Overlong = &spec.Overlong{Tokens: 4, Buffer: 5} }, "credit.overlong.buffer: 5 of 4"},
		"bad expression":    {func(s *spec.Spec) { s.Credit.TrainAgents = "(" }, "credit.train_agents: "},
		"no judge":          {func(s *spec.Spec) { s.Credit.Assignment = "judge" }, "credit.judge.url: missing"},
		"idle judge":        {func(s *spec.Spec) { s.Credit.Judge = &spec.Judge{URL: "http://a", Model: "m"} }, "credit.judge: unused key"},
		"judge nowhere":     {func(s *spec.Spec) { s.Credit.Assignment, s.Credit.Judge = "judge", &spec.Judge{URL: "a", Model: "m"} }, `credit.judge.url: "a" is not an HTTP address`},
		"few requests": {func(s *spec.Spec) {
			s.Credit.Assignment, s.Credit.Judge = "judge", &spec.Judge{URL: "http://a", Model: "m", Requests: 10}
		}, "credit.judge.requests: 10 are too few for the 128 rollouts"},
		"one task": {func(s *spec.Spec) { s.Credit.Assignment, s.Training.TasksPerStep = "value_difference", 1 }, "training.tasks_per_step: success is estimated"},
		"groups of one": {func(s *spec.Spec) {
			s.Training.DynamicSampling, s.Training.SamplesPerTask, s.Credit.Mean, s.Credit.Std = 1, 1, "none", "none"
		}, "training.dynamic_sampling: unused key"},
		"flat for a critic":    {func(s *spec.Spec) { s.Algorithm, s.Training.DynamicSampling = "ppo", 1 }, "training.dynamic_sampling: unused key; a critic is what rewards are compared with"},
		"flat for turns":       {func(s *spec.Spec) { s.Algorithm, s.Training.DynamicSampling = "turn_ppo", 1 }, "training.dynamic_sampling: unused key; a critic"},
		"flat for an estimate": {func(s *spec.Spec) { s.Credit.Assignment, s.Training.DynamicSampling = "value_difference", 1 }, "training.dynamic_sampling: unused key; an estimate"},
		"flat without a mean":  {func(s *spec.Spec) { s.Algorithm, s.Training.DynamicSampling = "reinforce++", 1 }, "training.dynamic_sampling: unused key; rewards are not compared"},
		"flat and whitened":    {func(s *spec.Spec) { s.Algorithm, s.Training.DynamicSampling = "reinforce++_baseline", 1 }, "training.dynamic_sampling: unused key; credit.whiten"},
		"flat for a judge": {func(s *spec.Spec) {
			s.Credit.Assignment, s.Credit.Judge, s.Training.DynamicSampling = "judge", &spec.Judge{URL: "http://a", Model: "m"}, 1
		}, "training.dynamic_sampling: unused key; a judge"},
		"mean of the batch": {func(s *spec.Spec) { s.Credit.Mean, s.Credit.Std = "batch", "mean" }, "credit.std: "},
		"running and apart": {func(s *spec.Spec) {
			s.Credit.Mean, s.Credit.Combine, s.Credit.Rewards = "running", "separate", map[string]float64{"final": 1, "style": 1}
		}, "credit.combine: unused key; a running mean"},
		"running ahead": {func(s *spec.Spec) {
			s.Credit.Mean, s.Credit.Assignment, s.Credit.Signals = "running", "discounted", map[string]float64{"tool_error": -1}
		}, "credit.mean: the rewards after a call"},
		"running, deviation of the group": {func(s *spec.Spec) { s.Credit.Mean, s.Credit.Std = "running", "group" }, "credit.std: a group of equal rewards"},
		"flat, running":                   {func(s *spec.Spec) { s.Credit.Mean, s.Training.DynamicSampling = "running", 1 }, "training.dynamic_sampling: unused key; rewards are not compared"},
		"mean and estimate":               {func(s *spec.Spec) { s.Credit.Assignment, s.Credit.Mean = "value_difference", "group" }, "credit.mean: unused key"},
		"deviation of others":             {func(s *spec.Spec) { s.Credit.Mean = "batch" }, "credit.std: a group of equal rewards has no deviation"},
		"nothing compared":                {func(s *spec.Spec) { s.Credit.Mean, s.Credit.Std, s.Credit.PerAgent = "none", "none", true }, "credit.per_agent: unused key"},
		"bounds of nothing":               {func(s *spec.Spec) { s.Loss.Type, s.Loss.ClipLow = "importance_sampling", 0.1 }, "loss.clip_low: unused key"},
		"dual clip of gspo":               {func(s *spec.Spec) { s.Loss.Type, s.Loss.DualClip = "gspo", 3 }, "loss.dual_clip: unused key"},
		"dual clip within":                {func(s *spec.Spec) { s.Loss.DualClip = 1 }, "loss.dual_clip: 1 is not possible"},
		"length of a mean":                {func(s *spec.Spec) { s.Loss.Length = 9 }, "loss.length: unused key"},
		"weightless KL":                   {func(s *spec.Spec) { s.Loss.KL = &spec.KL{} }, "loss.kl.weight: 0 is not possible"},
		"unknown KL":                      {func(s *spec.Spec) { s.Loss.KL = &spec.KL{Estimator: "k4", Weight: 1} }, "loss.kl.estimator: unknown name"},
		"weightless reward KL":            {func(s *spec.Spec) { s.Credit.KLInReward = &spec.KL{} }, "credit.kl_in_reward.weight: 0 is not possible"},
		"unbiased reward KL":              {func(s *spec.Spec) { s.Credit.KLInReward = &spec.KL{Estimator: "unbiased", Weight: 1} }, "credit.kl_in_reward.estimator: unknown name"},
		"KL apart": {func(s *spec.Spec) {
			s.Algorithm, s.Credit.Rewards, s.Credit.KLInReward = "gdpo", map[string]float64{"final": 1, "style": 1}, &spec.KL{Weight: 1}
		}, "credit.kl_in_reward: compared by itself"},
		"flat with KL":        {func(s *spec.Spec) { s.Credit.KLInReward, s.Training.DynamicSampling = &spec.KL{Weight: 1}, 1 }, "training.dynamic_sampling: unused key; with credit.kl_in_reward"},
		"corrected imitation": {func(s *spec.Spec) { s.Loss.Type, s.Loss.Correction = "cross_entropy", "mis" }, "loss.correction: loss.type cross_entropy has no place for it"},
		"floor of decoupled":  {func(s *spec.Spec) { s.Loss.Correction, s.Loss.ImportanceFloor = "decoupled", 0.5 }, "loss.importance_floor: unused key"},
		"floor over cap":      {func(s *spec.Spec) { s.Loss.Correction, s.Loss.ImportanceFloor = "mis", 3 }, "loss.importance_floor: 3 is not below 2"},
	} {
		require.ErrorContains(t, with(c.change).Validate(), c.want, name)
	}
}

func TestNumbersByNameAreReadFromFiles(t *testing.T) {
	t.Parallel()
	const text = "agent: {func: f}\ntasks: {train: t}\ngrader: {type: exact}\ntraining: {steps: 1}\ncredit:\n  signals: {tool_error: -0.5, emitted: 1}\n"
	s, err := spec.Parse([]byte(text), "a.yaml")
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"tool_error": -0.5, "emitted": 1}, s.Credit.Signals)
	_, err = spec.Parse([]byte(text+"  rewards: {final: all}\n"), "a.yaml")
	require.ErrorContains(t, err, "credit.rewards.final (line 7): text where a number is expected")
}

// Runs are compared by the digest of their specs, in which a preset is written out. So the
// digest of a preset changes only if the preset was wrong.
func TestPresetsKeepTheirDigests(t *testing.T) {
	t.Parallel()
	digests := map[string]string{
		"cispo":                "sha256:11a02e4bc35aac5a2c87cda5ff36c1ffa940eb3b34a4d25d7a257927def836e7",
		"dapo":                 "sha256:db8cb058ca17bd271833fa6c3560c9b5e53c426c343298c083743f466025b8db",
		"dr_grpo":              "sha256:a805e3c42adcce612a3a79388a1e3537fb3df6e763866e6e29170c9e21d87310",
		"gdpo":                 "sha256:ebff49648933d9286e42d677b95cbf0d14961fe84eb0bf143ff9b349c9222d4e",
		"gigpo":                "sha256:7f6178c64fa74f1676ec038b6c7ec2d6bee11723dba2f46b3add150a249b258c",
		"grpo":                 "sha256:ed3d620aacd1fd58878aa1e05a048cc79377b8a647a0b9a6ea15ace734d07bf4",
		"gspo":                 "sha256:c70b04ec3d5042dc8ba82e9f12630b890a7ab1508b3de224c09e0c85053b1e4c",
		"maxrl":                "sha256:e3f55e1ec001d5260a00a109cfb4475b837e0478f0f172cc81b38579620b266b",
		"ppo":                  "sha256:7b8006789f75e6c090d36257d72bcd2113cfd3755541e5ec04004296b9c4d8d3",
		"reinforce++":          "sha256:8928ca7b5528cb074a7ae6cfbd15050e623bb5a8ad4e13f6dd33da3c0c05e518",
		"reinforce++_baseline": "sha256:0d9592619b8f55ba26940f917d3fa10c3686aa51e7f9ba9db9b195967f9cdc86",
		"rloo":                 "sha256:59bab3d84c35fe743ec705cfc0f4f54e7ee1c0ce25e39fe58bbbc1a6b11b1c16",
		"turn_ppo":             "sha256:0fc2902e3191a95df3e6fc0badae23e936a7494312ac46711c9fa6cd247a72c9",
	}
	for _, name := range spec.Algorithms() {
		require.Equal(t, digests[name], spec.Digest(with(func(s *spec.Spec) { s.Algorithm = name })), name)
	}
}
