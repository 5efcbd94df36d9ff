package prefix_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model/engine/native/prefix"
)

func TestRowsThatBeginAlikeShareTheirBeginning(t *testing.T) {
	t.Parallel()
	rows := [][]int32{{1, 2, 3, 5}, {9}, {1, 2, 3, 4}, {}, {1, 2}, {1, 2, 3, 4}}
	want := [][]prefix.Row{{
		{Index: 3},
		{Index: 4, N: 2, Own: 2, Path: []prefix.Span{{N: 2}}},
		{Index: 2, N: 4, Own: 2, Path: []prefix.Span{{N: 2}, {At: 2, First: 2, N: 2}}},
		{Index: 5, N: 4, Path: []prefix.Span{{N: 2}, {At: 2, First: 2, N: 2}}},
		{Index: 0, N: 4, Own: 1, Path: []prefix.Span{{N: 2}, {At: 2, First: 2, N: 1}, {At: 3, First: 4, N: 1}}},
		{Index: 1, N: 1, Own: 1, Path: []prefix.Span{{First: 5, N: 1}}},
	}}
	require.Empty(t, cmp.Diff(want, prefix.Shared(rows, 100)))
}

// Each position of a shard belongs to exactly one prefix of rows, and no two positions
// belong to the same prefix.
func TestEachBeginningLiesOnceInAShard(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOf(rapid.SliceOf(rapid.Int32Range(0, 2))).Draw(t, "rows")
		limit := rapid.IntRange(1, 40).Draw(t, "limit")
		seen := make([]int, len(rows))
		for _, shard := range prefix.Shared(rows, limit) {
			at, beginnings, longest := map[string]int{}, map[int]string{}, 0
			for _, r := range shard {
				seen[r.Index]++
				row, covered := rows[r.Index], 0
				longest = max(longest, len(row))
				require.Len(t, row, r.N)
				for _, s := range r.Path {
					require.Equal(t, covered, s.At)
					covered += s.N
					for i := range s.N {
						beginning := string(tokens(row[:s.At+i+1]))
						if where, known := at[beginning]; known {
							require.Equal(t, where, s.First+i)
						}
						if other, known := beginnings[s.First+i]; known {
							require.Equal(t, other, beginning)
						}
						at[beginning], beginnings[s.First+i] = s.First+i, beginning
					}
				}
				require.Equal(t, r.N, covered)
			}
			for i := range len(beginnings) {
				require.Contains(t, beginnings, i, "positions lie without gaps")
			}
			require.LessOrEqual(t, len(beginnings), max(limit, 2*longest))
		}
		for _, n := range seen {
			require.Equal(t, 1, n)
		}
	})
}

func TestRowsInOrderShareNothing(t *testing.T) {
	t.Parallel()
	shards := prefix.InOrder([]int{3, 0, 4, 9, 1, 0}, 8)
	var have [][]int
	for _, shard := range shards {
		var indices []int
		for _, r := range shard {
			indices = append(indices, r.Index)
			require.Zero(t, r.Depth())
		}
		have = append(have, indices)
	}
	require.Equal(t, [][]int{{0, 1, 2}, {3}, {4, 5}}, have)
}

// A prefix longer than the limit of a shard is held once for several rows.
func TestALongBeginningIsSharedBeyondTheLimit(t *testing.T) {
	t.Parallel()
	long := make([]int32, 100)
	var rows [][]int32
	for i := range int32(8) {
		rows = append(rows, append(slices.Clone(long), i, i, i))
	}
	require.Len(t, prefix.Shared(rows, 20), 1)
}

// tokens returns a row as letters.
func tokens(row []int32) []byte {
	var out []byte
	for _, t := range row {
		out = append(out, 'a'+byte(t))
	}
	return out
}
