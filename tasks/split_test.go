package tasks_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/tasks"
)

// TestSplitsShareNothing uses questions that are composed of only a few single questions,
// so that many of them are connected in chains.
func TestSplitsShareNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var list []tasks.Task
		for i := range rapid.IntRange(1, 60).Draw(t, "tasks") {
			hops := []any{}
			for range rapid.IntRange(0, 3).Draw(t, "hops") {
				hops = append(hops, strconv.Itoa(rapid.IntRange(0, 80).Draw(t, "hop")))
			}
			input := strconv.Itoa(rapid.IntRange(0, 200).Draw(t, "input"))
			list = append(list, tasks.Task{ID: strconv.Itoa(i), Input: input, Metadata: map[string]any{"single_hops": hops}})
		}
		cut := rapid.IntRange(0, len(list)).Draw(t, "cut")
		kept, left := tasks.Disjoint([][]tasks.Task{list[:cut], list[cut:]})
		require.False(t, tasks.Overlaps(kept[0], kept[1]).Leaks())
		require.Equal(t, []int{cut - len(kept[0]), 0}, left)
		parts, err := tasks.Split(list, []int{3, 1, 1}, rapid.Uint64().Draw(t, "seed"))
		if err != nil {
			require.ErrorContains(t, err, "would be empty")
			return
		}
		require.Len(t, list, len(parts[0])+len(parts[1])+len(parts[2]))
		for i, part := range parts {
			for _, earlier := range parts[:i] {
				require.False(t, tasks.Overlaps(part, earlier).Leaks())
			}
		}
	})
}

func TestSplitsHaveTheirShares(t *testing.T) {
	t.Parallel()
	list, err := tasks.Open("arithmetic:train:1000")
	require.NoError(t, err)
	parts, err := tasks.Split(list, []int{8, 1, 1}, 1)
	require.NoError(t, err)
	for i, want := range []int{800, 100, 100} {
		require.InDelta(t, want, len(parts[i]), 2)
	}
	again, err := tasks.Split(list, []int{8, 1, 1}, 1)
	require.NoError(t, err)
	require.Equal(t, parts, again)
	other, err := tasks.Split(list, []int{8, 1, 1}, 2)
	require.NoError(t, err)
	require.NotEqual(t, parts, other)
	_, err = tasks.Split(list, []int{1, 0}, 1)
	require.ErrorContains(t, err, "a share of 0")
	_, err = tasks.Split(list[:1], []int{1, 1}, 1)
	require.ErrorContains(t, err, "of 2 would be empty: from 1 task come only 1 group")
}
