package stream_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/tasks/stream"
)

func TestEveryEpochIsAPermutationOfAllTasks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 500).Draw(t, "n")
		order := stream.Order(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 9).Draw(t, "epoch"), n)
		slices.Sort(order)
		for i, index := range order {
			require.Equal(t, i, index)
		}
	})
}

func TestStreamIsEpochAfterEpoch(t *testing.T) {
	t.Parallel()
	const n = 7
	var want []int
	for epoch := range 4 {
		want = append(want, stream.Order(3, epoch, n)...)
	}
	for ordinal, task := range want {
		index, epoch := stream.At(3, n, ordinal)
		require.Equal(t, task, index)
		require.Equal(t, ordinal/n, epoch)
	}
	require.NotEqual(t, want[:n], want[n:2*n], "each epoch has an order of its own")
	require.NotEqual(t, want[:n], stream.Order(4, 0, n), "and so has each seed")
}

// Running workflows replay these orders, so they may never change.
func TestOrderIsTheSameInEveryVersion(t *testing.T) {
	t.Parallel()
	require.Equal(t, []int{2, 3, 0, 1, 6, 5, 4, 7}, stream.Order(1, 0, 8))
	require.Equal(t, []int{3, 5, 7, 4, 0, 1, 6, 2}, stream.Order(1, 1, 8))
}
