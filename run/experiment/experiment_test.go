package experiment_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/run/experiment"
)

func TestSettingsThatCannotBeUsedAreNamed(t *testing.T) {
	t.Parallel()
	require.NoError(t, settings().Check())
	for want, change := range map[string]func(*experiment.Settings){
		"share: 0:":                func(s *experiment.Settings) { s.Share = 0 },
		"share: 1:":                func(s *experiment.Settings) { s.Share = 1 },
		"share: NaN:":              func(s *experiment.Settings) { s.Share = math.NaN() },
		"level: 0:":                func(s *experiment.Settings) { s.Level = 0 },
		"level: 0.6:":              func(s *experiment.Settings) { s.Level = 0.6 },
		"level: NaN:":              func(s *experiment.Settings) { s.Level = math.NaN() },
		"margin: -0.1:":            func(s *experiment.Settings) { s.Margin = -0.1 },
		"margin: 1:":               func(s *experiment.Settings) { s.Margin = 1 },
		"margin: NaN:":             func(s *experiment.Settings) { s.Margin = math.NaN() },
		"min_conversations: 0:":    func(s *experiment.Settings) { s.MinConversations = 0 },
		"max_conversations: 0:":    func(s *experiment.Settings) { s.MaxConversations = 0 },
		"max_conversations: 2000:": func(s *experiment.Settings) { s.Share = 0.01 },
	} {
		s := settings()
		change(&s)
		require.ErrorContains(t, s.Check(), want)
		_, err := experiment.Compare(s, nil)
		require.ErrorContains(t, err, want)
	}
}

func TestTheRuleEndsAnExperiment(t *testing.T) {
	t.Parallel()
	s := settings()
	s.Margin = 0.15
	result := func(d experiment.Decision, candidate, control int) experiment.Result {
		return experiment.Result{
			Difference: 0.1, Low: 0.05, High: 0.14, Level: 0.05, Decision: d,
			Candidate: experiment.Arm{Units: 50, Conversations: candidate, EffectiveUnits: 40}, Control: experiment.Arm{Units: 60, Conversations: control, EffectiveUnits: 50},
		}
	}
	few := result(experiment.Undecided, 400, 500)
	few.Candidate.EffectiveUnits = 19.5
	many := few
	many.Candidate.Conversations = 1500
	for _, c := range []struct {
		result experiment.Result
		want   experiment.Verdict
		reason string
	}{
		{result(experiment.Better, 100, 100), experiment.Promote, "judge the candidate better: a difference of +0.100 (+0.050 to +0.140 at level 0.05) between 100 conversations of 50 units with it and 100 of 60 without"},
		{result(experiment.Worse, 100, 100), experiment.Withdraw, "judge the candidate worse: "},
		{result(experiment.NoDifference, 100, 100), experiment.End, "the difference is less than 0.15: "},
		{result(experiment.Undecided, 100, 100), experiment.Continue, "no difference was found yet: "},
		{result(experiment.Better, 99, 900), experiment.Continue, "each version needs min_conversations (100): "},
		{result(experiment.Worse, 900, 99), experiment.Continue, "each version needs min_conversations (100): "},
		{result(experiment.NoDifference, 99, 900), experiment.Continue, "each version needs min_conversations (100): "},
		{few, experiment.Continue, "each version needs 20 effective units, and the smaller number is 19.5: "},
		{result(experiment.Undecided, 999, 1000), experiment.Continue, "no difference was found yet: "},
		{result(experiment.Undecided, 1000, 1000), experiment.End, "no difference was found within max_conversations (2000): "},
		{many, experiment.End, "no difference was found within max_conversations (2000): "},
		{result(experiment.Better, 1000, 1000), experiment.Promote, "judge the candidate better: "},
		{result(experiment.Worse, 1000, 1000), experiment.Withdraw, "judge the candidate worse: "},
		{result(experiment.Better, 99, 1901), experiment.End, "a version has fewer than min_conversations (100): "},
	} {
		verdict, reason := experiment.Decide(s, c.result)
		require.Equal(t, c.want, verdict, reason)
		require.Contains(t, reason, c.reason)
	}
}
