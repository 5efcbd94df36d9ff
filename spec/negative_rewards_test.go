package spec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
)

func TestMaxRLRefusesRewardsOfBothSigns(t *testing.T) {
	t.Parallel()
	number := func(v float64) *float64 { return &v }
	for name, c := range map[string]struct {
		change func(*spec.Spec)
		want   string
	}{
		"failures":          {func(s *spec.Spec) { s.Agent.FailureReward = -0.5 }, "agent.failure_reward: -0.5 is negative"},
		"any grader":        {func(s *spec.Spec) { s.Grader = spec.Grader{Type: "command", Command: []string{"g"}} }, "grader.minimum: the grader may give -1e+06"},
		"a limited grader":  {func(s *spec.Spec) { s.Grader = spec.Grader{Type: "agent", Limit: 2} }, "grader.minimum: the grader may give -2"},
		"a bounded grader":  {func(s *spec.Spec) { s.Grader = spec.Grader{Type: "agent", Minimum: number(-1)} }, "grader.minimum: the grader may give -1"},
		"a negative weight": {func(s *spec.Spec) { s.Credit.Rewards = map[string]float64{"final": -1} }, "credit.rewards.final: the weight is negative"},
		"another reward":    {func(s *spec.Spec) { s.Credit.Rewards = map[string]float64{"final": 1, "style": 1} }, "credit.rewards.style: agents may post any number"},
		"a bad signal":      {func(s *spec.Spec) { s.Credit.Signals = map[string]float64{"tool_error": -1} }, "credit.signals.tool_error: the weight is negative"},
		"emitted rewards":   {func(s *spec.Spec) { s.Credit.Signals = map[string]float64{"emitted": 1} }, "credit.signals.emitted: agents may post any number"},
		"long attempts":     {func(s *spec.Spec) { s.Credit.Overlong = &spec.Overlong{Tokens: 9, Buffer: 3} }, "credit.overlong: a penalty makes rewards negative"},
		"a KL":              {func(s *spec.Spec) { s.Credit.KLInReward = &spec.KL{Weight: 1} }, "credit.kl_in_reward: a penalty makes rewards negative"},
		"bad form":          {func(s *spec.Spec) { s.Credit.FormatPenalty = 0.5 }, "credit.format_penalty: a penalty makes rewards negative"},
	} {
		require.NoError(t, with(c.change).Validate(), name)
		s := with(c.change)
		s.Algorithm = "maxrl"
		require.ErrorContains(t, s.Validate(), c.want, name)
	}
	for name, change := range map[string]func(*spec.Spec){
		"a grader that never gives less than 0": func(s *spec.Spec) {
			s.Grader = spec.Grader{Type: "command", Command: []string{"g"}, Minimum: number(0)}
		},
		"signals that only add": func(s *spec.Spec) { s.Credit.Signals = map[string]float64{"recovered": 0.5} },
		"a weight":              func(s *spec.Spec) { s.Credit.Rewards = map[string]float64{"final": 2} },
	} {
		s := with(change)
		s.Algorithm = "maxrl"
		require.NoError(t, s.Validate(), name)
	}
}

// A run that an older release began continues, and its numbers can still be set.
func TestSetRefusesOnlyWhatItBreaks(t *testing.T) {
	t.Parallel()
	s := with(func(s *spec.Spec) { s.Algorithm, s.Agent.FailureReward = "maxrl", -1 })
	require.Error(t, s.Validate())
	_, err := s.Set(nil)
	require.NoError(t, err)
	_, err = s.Set(map[string]float64{"loss.clip_high": 0.3})
	require.NoError(t, err)
	_, err = s.Set(map[string]float64{"loss.clip_high": -1})
	require.ErrorContains(t, err, "loss.clip_high: -1 is not possible")
	require.NotContains(t, err.Error(), "failure_reward")
}

func TestAMinimumIsForGradersOfOthers(t *testing.T) {
	t.Parallel()
	none := with(func(s *spec.Spec) { s.Grader.Minimum = new(float64) })
	require.ErrorContains(t, none.Validate(), "grader.minimum: unused key")
	s := with(func(s *spec.Spec) { s.Grader = spec.Grader{Type: "agent"} })
	digest := spec.Digest(s)
	s.Grader.Minimum = new(float64)
	require.NoError(t, s.Validate())
	require.NotEqual(t, digest, spec.Digest(s), "0 is a bound like any other")
}
