package shuffle_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/tasks/shuffle"
)

func order(key uint64, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = shuffle.Index(key, n, i)
	}
	return out
}

func TestIndexIsAPermutation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3000).Draw(t, "n")
		seen := make([]bool, n)
		for _, i := range order(rapid.Uint64().Draw(t, "key"), n) {
			require.False(t, seen[i])
			seen[i] = true
		}
	})
}

func TestIndexReachesHugeRanges(t *testing.T) {
	t.Parallel()
	const n = 1 << 52
	seen := map[int]bool{}
	for i := range 1000 {
		at := shuffle.Index(1, n, n-1-i)
		require.Less(t, at, n)
		seen[at] = true
	}
	require.Len(t, seen, 1000)
}

// With 24 orders and 24,000 keys each order is expected 1,000 times; six
// standard deviations are 186.
func TestEveryOrderOfAFewIsAboutEquallyLikely(t *testing.T) {
	t.Parallel()
	counts := map[[4]int]int{}
	for key := range uint64(24000) {
		counts[[4]int(order(key, 4))]++
	}
	require.Len(t, counts, 24)
	for o, count := range counts {
		require.InDelta(t, 1000, count, 186, "%v", o)
	}
}

// The places of each number are uniform: with 20 cells of 1,000 expected entries,
// chi-square with 19 degrees of freedom is almost certainly below 60.
func TestPlacesAreUniform(t *testing.T) {
	t.Parallel()
	const n = 20
	for _, i := range []int{0, 7, n - 1} {
		var counts [n]float64
		for key := range uint64(1000 * n) {
			counts[shuffle.Index(shuffle.Key(key, 3), n, i)]++
		}
		chi := 0.0
		for _, c := range counts {
			chi += (c - 1000) * (c - 1000) / 1000
		}
		require.Less(t, chi, 60.0)
	}
}

// Orders are part of recorded runs, so these values may never change.
func TestOrdersAreTheSameInEveryVersion(t *testing.T) {
	t.Parallel()
	require.Equal(t, []int{9, 8, 1, 0, 5, 2, 6, 7, 3, 4}, order(1, 10))
	require.Equal(t, uint64(0x45393f499232a6b7), shuffle.Key(1, 2, 3))
}

func TestKeyDependsOnEveryPartAndItsPlace(t *testing.T) {
	t.Parallel()
	seen := map[uint64]bool{}
	for _, parts := range [][]uint64{{}, {0}, {0, 0}, {1}, {1, 0}, {0, 1}, {1, 1}, {2}} {
		seen[shuffle.Key(parts...)] = true
	}
	require.Len(t, seen, 8)
}

func TestIndexRefusesWhatIsOutOfRange(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]int{{0, 0}, {5, 5}, {5, -1}} {
		require.Panics(t, func() { shuffle.Index(1, c[0], c[1]) })
	}
}
