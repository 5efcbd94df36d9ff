package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// attempt returns an attempt with a reward named brevity.
func attempt(final, brevity float64, says ...string) entry {
	return entry{says: append([]string{"solo: start"}, says...), reward: final, rewards: []record.Reward{{Name: "brevity", Value: brevity}}}
}

// A group is flat if none of its tokens would get an advantage, whatever its final
// rewards are. The metric of a batch counts the same groups.
func TestAGroupIsFlatIfItsCreditIs(t *testing.T) {
	t.Parallel()
	weighed := map[string]float64{"final": 1, "brevity": 0.3}
	equal := []entry{attempt(1, 0), attempt(1, 0), attempt(1, 0)}
	varied := []entry{attempt(1, 0), attempt(0, 0), attempt(1, 0)}
	failing := []entry{attempt(1, 0), attempt(1, 0), attempt(1, 0)}
	failing[1].spans = []record.Span{failedTool(0)}
	for name, c := range map[string]struct {
		credit spec.Credit
		groups [][]entry
		want   []bool
	}{
		"a second reward": {
			spec.Credit{Rewards: weighed},
			[][]entry{{attempt(1, 0), attempt(1, 1), attempt(1, 0.5)}, equal, varied},
			[]bool{false, true, false},
		},
		"rewards apart": {
			spec.Credit{Rewards: weighed, Combine: "separate"},
			[][]entry{{attempt(1, 0), attempt(1, 1), attempt(1, 0.5)}, equal},
			[]bool{false, true},
		},
		"another reward alone": {spec.Credit{Rewards: map[string]float64{"brevity": 1}}, [][]entry{varied}, []bool{true}},
		"signals":              {spec.Credit{Signals: map[string]float64{"tool_error": -0.5}}, [][]entry{failing, equal}, []bool{false, true}},
		"long attempts": {
			spec.Credit{Overlong: &spec.Overlong{Tokens: 6, Buffer: 4}},
			[][]entry{{attempt(1, 0), attempt(1, 0, "solo: then")}, equal},
			[]bool{false, true},
		},
		"agents that are not trained": {
			spec.Credit{TrainAgents: "write"},
			[][]entry{{{says: []string{"write: a"}, reward: 1}, {says: []string{"check: a"}, reward: 0}}, {{says: []string{"check: a"}, reward: 1}, {says: []string{"check: a"}, reward: 0}}},
			[]bool{true, true},
		},
		"states": {
			spec.Credit{Assignment: "gigpo"},
			[][]entry{{attempt(1, 0), attempt(1, 0, "solo: start")}, equal},
			[]bool{false, true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t).credited(c.credit)
			// One more group, which can always be trained.
			in := w.record(1, append(c.groups, []entry{{says: []string{"write: a"}, reward: 1, rewards: []record.Reward{{Name: "brevity", Value: 1}}}, {says: []string{"write: a"}, rewards: []record.Reward{{Name: "brevity"}}}})...)
			got, err := do[activities.FlatGroupsResult](t, w.coordinator.FlatGroups, activities.FlatGroupsInput{
				Run: "demo", Policy: model.DefaultPolicy, Step: 1, Groups: in.Groups,
			})
			require.NoError(t, err)
			require.Equal(t, append(c.want, false), got.Flat)
			flat := 0
			for _, f := range c.want {
				if f {
					flat++
				}
			}
			_, batch := w.made(in)
			require.InDelta(t, flat, batch.Metrics["batch/zero_variance_groups"], 0)
		})
	}
}

func TestAGroupWithoutCreditIsFlat(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t).credited(spec.Credit{Rewards: map[string]float64{"brevity": 1}})
	in := w.record(1, two(1, 0))
	got, err := do[activities.FlatGroupsResult](t, w.coordinator.FlatGroups, activities.FlatGroupsInput{
		Run: "demo", Policy: model.DefaultPolicy, Step: 1, Groups: in.Groups,
	})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, got.Flat, "another group may replace one without the reward brevity")
}
