package stream_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/tasks/stream"
)

func TestEachStepHasReservesOfItsOwn(t *testing.T) {
	t.Parallel()
	const n = 20
	reserves := func(seed uint64, step int) []int {
		var out []int
		for k := range 2 * n {
			out = append(out, stream.Reserve(seed, n, step, k))
		}
		return out
	}
	first := reserves(1, 3)
	require.Equal(t, first, reserves(1, 3))
	require.NotEqual(t, first, reserves(1, 4))
	require.NotEqual(t, first, reserves(2, 3))
	require.NotEqual(t, first[:n], stream.Order(1, 0, n), "not the order of the normal stream")
	for _, pass := range [][]int{first[:n], first[n:]} {
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(pass))), n, "every task once before any twice")
	}
}
