package retention_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/spec"
)

// upTo returns the versions 0 to n.
func upTo(n int) (all []int) {
	for v := range n + 1 {
		all = append(all, v)
	}
	return all
}

func moved(numbers ...int) (moves []record.Promotion) {
	previous := -1
	for _, n := range numbers {
		moves = append(moves, record.Promotion{Version: n, Previous: previous})
		previous = n
	}
	return moves
}

func TestVersionsThatNobodyNeedsAreThoseThatNoRuleKeeps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		holdings record.Holdings
		keep     spec.Keep
		lag      int
		want     []int
	}{
		"nothing":                   {record.Holdings{}, spec.Keep{Last: 2}, 0, nil},
		"the start":                 {record.Holdings{Versions: upTo(2)}, spec.Keep{Last: 2}, 0, nil},
		"the last two":              {record.Holdings{Versions: upTo(5)}, spec.Keep{Last: 2}, 0, []int{1, 2, 3}},
		"the last is made from one": {record.Holdings{Versions: upTo(5)}, spec.Keep{Last: 1}, 0, []int{1, 2, 3}},
		"the last three":            {record.Holdings{Versions: upTo(5)}, spec.Keep{Last: 3}, 0, []int{1, 2}},
		"a lag":                     {record.Holdings{Versions: upTo(6)}, spec.Keep{Last: 2}, 2, []int{1, 2}},
		"every third":               {record.Holdings{Versions: upTo(9)}, spec.Keep{Last: 2, Every: 3}, 0, []int{1, 2, 4, 5, 7}},
		"the promoted two":          {record.Holdings{Versions: upTo(9), Promotions: moved(0, 1, 3, 5)}, spec.Keep{Last: 2}, 0, []int{1, 2, 4, 6, 7}},
		"all that were promoted":    {record.Holdings{Versions: upTo(9), Promotions: moved(0, 1, 3, 5)}, spec.Keep{Last: 2, Promoted: true}, 0, []int{2, 4, 6, 7}},
		"a decision that is due":    {record.Holdings{Versions: upTo(5), Undecided: []int{2}}, spec.Keep{Last: 2}, 0, []int{1, 3}},
		"an attempt under way":      {record.Holdings{Versions: upTo(5), InUse: []int{1, 3}}, spec.Keep{Last: 2}, 0, []int{2}},
		"some are gone":             {record.Holdings{Versions: []int{0, 2, 4, 5}}, spec.Keep{Last: 1}, 0, []int{2}},
	} {
		require.Equal(t, c.want, retention.Unneeded(c.holdings, c.keep, c.lag), name)
	}
}

func TestNothingIsGivenUpThatARunCanAskFor(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		newest, lag := rapid.IntRange(0, 30).Draw(t, "newest"), rapid.IntRange(0, 8).Draw(t, "lag")
		h := record.Holdings{
			Versions: upTo(newest), Promotions: moved(rapid.SliceOf(rapid.IntRange(0, newest)).Draw(t, "promoted")...),
			Undecided: rapid.SliceOf(rapid.IntRange(0, newest)).Draw(t, "undecided"), InUse: rapid.SliceOf(rapid.IntRange(0, newest)).Draw(t, "in use"),
		}
		keep := spec.Keep{Last: rapid.IntRange(1, 9).Draw(t, "last"), Every: rapid.IntRange(0, 5).Draw(t, "every"), Promoted: rapid.Bool().Draw(t, "ever")}
		gone := retention.Unneeded(h, keep, lag)
		for step := newest + 1; step <= newest+1+lag; step++ {
			require.NotContains(t, gone, max(0, step-1-lag), "what step %d samples from", step)
		}
		require.NotContains(t, gone, newest, "the parent of the next")
		require.NotContains(t, gone, 0)
		if n := len(h.Promotions); n > 0 {
			require.NotContains(t, gone, h.Promotions[n-1].Version)
			require.NotContains(t, gone, h.Promotions[n-1].Previous)
		}
		for _, v := range append(h.Undecided, h.InUse...) {
			require.NotContains(t, gone, v)
		}
	})
}
