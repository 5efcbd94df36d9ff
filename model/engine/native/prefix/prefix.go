// Package prefix finds the prefixes that rows of tokens have in common, and places their
// positions in shards so that a common prefix lies there once: a causal model computes
// the same numbers for it in each of the rows.
//
// It handles only tokens and positions, neither models nor numbers. Its results depend
// only on the tokens and on the given limit.
package prefix

import (
	"cmp"
	"slices"
)

// Span is some positions of a row that lie one after the other in a shard.
type Span struct {
	At    int // index of the first in the row
	First int // index of the first in the shard
	N     int
}

// Below returns how many positions of the span come before position limit of the row.
func (s Span) Below(limit int) int { return max(0, min(s.N, limit-s.At)) }

// Row says where the positions of a row lie in a shard.
type Row struct {
	Index int // of the row
	N     int // its positions
	// Path covers the positions from the first on. All but the last Own of them lie where
	// an earlier row of the shard has them too. If Own is not 0, the last span covers the
	// own positions.
	Path []Span
	Own  int
}

// Depth returns how many positions the row shares with earlier rows.
func (r Row) Depth() int { return r.N - r.Own }

// First returns where the row's own positions begin in the shard. It is defined only if
// Own is not 0.
func (r Row) First() int { return r.Path[len(r.Path)-1].First }

// InOrder places rows of the given lengths in shards, in their order and without sharing
// positions. A shard has at most limit positions, unless it has only one row with
// positions.
func InOrder(lengths []int, limit int) [][]Row {
	var shards [][]Row
	used := 0
	for i, n := range lengths {
		if len(shards) == 0 || used > 0 && used+n > limit {
			shards, used = append(shards, nil), 0
		}
		last := len(shards) - 1
		shards[last] = append(shards[last], place(Row{Index: i, N: n, Own: n}, used))
		used += n
	}
	return shards
}

// Shared places rows in shards, in the order of their tokens, so that each row has as
// much as possible in common with the one before it. A shard has at most limit positions,
// or twice those of its last row if these are more, so that a long prefix is not computed
// again for every few rows that continue it.
func Shared(rows [][]int32, limit int) [][]Row {
	var shards [][]Row
	used := 0
	var before []int32 // the previous row of the shard
	for _, i := range sorted(rows) {
		n := len(rows[i])
		common := Common(before, rows[i])
		if len(shards) == 0 || used > 0 && used+n-common > max(limit, 2*n) {
			shards, used, common = append(shards, nil), 0, 0
		}
		last := len(shards) - 1
		r := Row{Index: i, N: n, Own: n - common}
		if common > 0 {
			r.Path = cut(shards[last][len(shards[last])-1].Path, common)
		}
		shards[last] = append(shards[last], place(r, used))
		used += r.Own
		before = rows[i]
	}
	return shards
}

// Common returns the length of the longest common prefix of a and b.
func Common(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// sorted returns the order of rows by their tokens; equal rows keep their order.
func sorted(rows [][]int32) []int {
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		return cmp.Or(slices.Compare(rows[i], rows[j]), cmp.Compare(i, j))
	})
	return order
}

// place adds the row's own positions, which lie from first on in the shard.
func place(r Row, first int) Row {
	if r.Own > 0 {
		r.Path = append(r.Path, Span{At: r.Depth(), First: first, N: r.Own})
	}
	return r
}

// cut returns the spans of the first n positions of a path.
func cut(path []Span, n int) []Span {
	var out []Span
	for _, s := range path {
		if s.N = s.Below(n); s.N > 0 {
			out = append(out, s)
		}
	}
	return out
}
