package tasks_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/tasks"
)

func TestEachStepHasReservesOfItsOwn(t *testing.T) {
	t.Parallel()
	const n = 20
	stream := func(seed uint64, step int) []int {
		var out []int
		for k := range 2 * n {
			out = append(out, tasks.Reserve(seed, n, step, k))
		}
		return out
	}
	first := stream(1, 3)
	require.Equal(t, first, stream(1, 3))
	require.NotEqual(t, first, stream(1, 4))
	require.NotEqual(t, first, stream(2, 3))
	require.NotEqual(t, first[:n], tasks.Order(1, 0, n), "not the order of the normal stream")
	for _, pass := range [][]int{first[:n], first[n:]} {
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(pass))), n, "every task once before any twice")
	}
}
