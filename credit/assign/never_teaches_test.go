package assign_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit/assign"
	"github.com/fulgurite/fulgurite/spec"
)

// called returns a corridor whose calls are made by the agents that name returns.
func called(name func(group, sample int) string) [][]assign.Sample {
	groups := corridor(2)
	for g := range groups {
		for i := range groups[g] {
			for k := range groups[g][i].Calls {
				groups[g][i].Calls[k].Agent = name(g, i)
			}
		}
	}
	return groups
}

func TestAgentsThatNoOtherAttemptHasNeverTeach(t *testing.T) {
	t.Parallel()
	one := func(int, int) string { return "writer" }
	each := func(g, i int) string { return string(rune('a' + 4*g + i)) }
	pairs := func(_, i int) string { return string(rune('a' + i/2)) }
	for name, c := range map[string]struct {
		credit spec.Credit
		agents func(int, int) string
		never  bool
	}{
		"one agent":                  {spec.Credit{PerAgent: true}, one, false},
		"an agent for each attempt":  {spec.Credit{PerAgent: true}, each, true},
		"an agent for every two":     {spec.Credit{PerAgent: true}, pairs, false},
		"compared with others":       {spec.Credit{}, each, false},
		"compared with other groups": {spec.Credit{PerAgent: true, Mean: "batch", Std: "batch"}, one, false},
		"separate rewards":           {spec.Credit{PerAgent: true, Combine: "separate", Rewards: map[string]float64{"final": 1, "style": 1}}, each, true},
		"trained in one attempt":     {spec.Credit{TrainAgents: "[ae]"}, each, true},
		"trained in two attempts":    {spec.Credit{TrainAgents: "a"}, pairs, false},
	} {
		groups := called(c.agents)
		// Neither rewards that are on record nor missing ones matter.
		for g := range groups {
			for i := range groups[g] {
				equal := 1.0
				groups[g][i].Reward = &equal
			}
		}
		never, err := assign.NeverTeaches(defaults(c.credit), groups)
		require.NoError(t, err, name)
		require.Equal(t, c.never, never, name)
		require.InDelta(t, 1, *groups[0][0].Reward, 0, "%s: samples stay as they are", name)
		require.Empty(t, groups[0][0].Rewards, "%s: samples stay as they are", name)
	}
}
