package spec_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

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
		require.Equal(t, d.Credit.Critical(), d.Critic != nil, name)
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
	require.Equal(t, "gigpo", d.Credit.Assignment)
	require.Equal(t, "sequence_mean", d.Loss.Aggregation)
	require.InDelta(t, 4e-4, d.Loss.ClipHigh, 0, "another loss has bounds of its own")
	require.Equal(t, "group", d.Credit.Std)

	valued := with(func(s *spec.Spec) { s.Algorithm, s.Credit.Assignment = "rloo", "value_difference" })
	require.NoError(t, valued.Validate(), "estimates replace every comparison")
	require.Equal(t, "none", valued.WithDefaults().Credit.Mean)

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
		"judge nowhere":     {func(s *spec.Spec) { s.Credit.Assignment, s.Credit.Judge = "judge", &spec.Judge{URL: "a", Model: "m"} }, `credit.judge.url: "a" is no HTTP address`},
		"few requests": {func(s *spec.Spec) {
			s.Credit.Assignment, s.Credit.Judge = "judge", &spec.Judge{URL: "http://a", Model: "m", Requests: 10}
		}, "credit.judge.requests: 10 are too few for the 128 rollouts"},
		"one task": {func(s *spec.Spec) { s.Credit.Assignment, s.Training.TasksPerStep = "value_difference", 1 }, "training.tasks_per_step: success is estimated"},
		"groups of one": {func(s *spec.Spec) {
			s.Training.DynamicSampling, s.Training.SamplesPerTask, s.Credit.Mean, s.Credit.Std = 1, 1, "none", "none"
		}, "training.dynamic_sampling: unused key"},
		"mean of the batch":   {func(s *spec.Spec) { s.Credit.Mean, s.Credit.Std = "batch", "mean" }, "credit.std: "},
		"mean and estimate":   {func(s *spec.Spec) { s.Credit.Assignment, s.Credit.Mean = "value_difference", "group" }, "credit.mean: unused key"},
		"deviation of others": {func(s *spec.Spec) { s.Credit.Mean = "batch" }, "credit.std: a group of equal rewards has no deviation"},
		"nothing compared":    {func(s *spec.Spec) { s.Credit.Mean, s.Credit.Std, s.Credit.PerAgent = "none", "none", true }, "credit.per_agent: unused key"},
		"bounds of nothing":   {func(s *spec.Spec) { s.Loss.Type, s.Loss.ClipLow = "importance_sampling", 0.1 }, "loss.clip_low: unused key"},
		"dual clip of gspo":   {func(s *spec.Spec) { s.Loss.Type, s.Loss.DualClip = "gspo", 3 }, "loss.dual_clip: unused key"},
		"dual clip within":    {func(s *spec.Spec) { s.Loss.DualClip = 1 }, "loss.dual_clip: 1 is not possible"},
		"length of a mean":    {func(s *spec.Spec) { s.Loss.Length = 9 }, "loss.length: unused key"},
		"weightless KL":       {func(s *spec.Spec) { s.Loss.KL = &spec.KL{} }, "loss.kl.weight: 0 is not possible"},
		"unknown KL":          {func(s *spec.Spec) { s.Loss.KL = &spec.KL{Estimator: "k4", Weight: 1} }, "loss.kl.estimator: unknown name"},
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
