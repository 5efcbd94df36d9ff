package calls

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/credit/signals"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

func TestAdvantagesOfACallAreThoseOfItsTrainedTokens(t *testing.T) {
	t.Parallel()
	got := creditOf(model.Batch{
		Trajectories: []model.BatchTrajectory{{Attempt: "r/train-1/0/0/1", Advantage: 0.5}, {Attempt: "r/train-1/0/1/1", Advantage: -0.5}},
		Rows: []model.BatchRow{{
			Sampled: []bool{false, true, true, false, true}, Advantages: []float32{0, 1, 3, 9, -1}, Calls: []int32{-1, 0, 0, 0, 2}, Trajectory: 0,
		}},
	})
	want := map[string]credited{
		"r/train-1/0/0/1": {0.5, map[int]spread{0: {Tokens: 2, Mean: 2, Min: 1, Max: 3}, 2: {Tokens: 1, Mean: -1, Min: -1, Max: -1}}},
		"r/train-1/0/1/1": {-0.5, map[int]spread{}},
	}
	require.Empty(t, cmp.Diff(want, got, cmp.AllowUnexported(credited{})))
	require.Equal(t, "2 (from 1 to 3)", got["r/train-1/0/0/1"].calls[0].String())
	require.Equal(t, "-1", got["r/train-1/0/0/1"].calls[2].String())
}

func TestTheBeginningOfAnAddressIsAPrefix(t *testing.T) {
	t.Parallel()
	a := record.Address{RolloutID: record.RolloutID{Run: "r", Kind: record.Train, Step: 1, Task: 10}, Attempt: 1}
	for _, c := range []struct {
		first, rest string
		has         bool
	}{
		{"r", "", true}, {"r", "train-1", true}, {"r/train-1/10", "", true}, {"r", "r/train-1/10/0/1", true}, {"r", "train-1/10/0/1", true},
		{"r", "train-1/1", false}, {"r/train-10", "", false}, {"q", "", false}, {"r", "train-1/10/0/2", false},
	} {
		p, err := parsePrefix(c.first, c.rest)
		require.NoError(t, err)
		require.Equal(t, c.has, p.of(a), "%s %s", c.first, c.rest)
	}
	for _, bad := range []string{"r//1", "r/train-1/1/1/1/1", ""} {
		_, err := parsePrefix(bad, "")
		require.Error(t, err)
	}
}

func TestACallIsShownWithTheServerThatSampledIt(t *testing.T) {
	t.Parallel()
	var a attemptCalls
	a.fill(signals.Attempt{History: []record.Exchange{{Call: record.Call{Server: "gpu-2:8000", ReplayedFrom: 1}}, {Call: record.Call{Seq: 1}}}})
	require.Equal(t, []string{"gpu-2:8000", ""}, []string{a.List[0].Server, a.List[1].Server})
	var out strings.Builder
	require.NoError(t, a.print(&terminal.Terminal{Out: &out}))
	require.Contains(t, out.String(), "at gpu-2:8000; replayed from attempt 1\n")
	require.Equal(t, 1, strings.Count(out.String(), " at "))
}
