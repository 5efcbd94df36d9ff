package sqlmatch

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strings"
)

// table is the result of a query. A value is nil, int64, float64, string or blob.
type table struct {
	columns int
	rows    [][]any
	bytes   int // of texts and blobs
}

// blob is bytes that are no text.
type blob string

// tolerance is how much two numbers may differ, relative to the larger one, unless both
// are whole.
const tolerance = 1e-9

// equal reports whether two results are the same apart from the order of columns and,
// unless ordered, of rows. Two results without rows are the same.
func equal(a, b table, ordered bool) bool {
	switch {
	case len(a.rows) != len(b.rows):
		return false
	case len(a.rows) == 0:
		return true
	case a.columns != b.columns:
		return false
	}
	codes := newCodes(a, b)
	left, right := codes.columns(a), codes.columns(b)
	if ordered {
		return sameColumns(left, right)
	}
	if !sameColumns(sorted(left), sorted(right)) {
		return false
	}
	m := matching{left: left, right: right, taken: make([]bool, len(right)), budget: matchingBudget}
	rows := len(a.rows)
	return m.match(0, make([]int32, rows), make([]int32, rows))
}

// codes maps values to numbers. Equal values have equal numbers.
type codes map[any]int32

// newCodes returns codes for the values of both results. Numbers are coded in ascending
// order, so that neighbors that differ only by rounding share a code.
func newCodes(results ...table) codes {
	c := codes{}
	var numbers []any
	for _, t := range results {
		for _, row := range t.rows {
			for _, v := range row {
				if _, known := c[v]; known {
					continue
				}
				c[v] = int32(len(c))
				switch v.(type) {
				case int64, float64:
					numbers = append(numbers, v)
				}
			}
		}
	}
	slices.SortFunc(numbers, compareNumbers)
	for i := 1; i < len(numbers); i++ {
		if near(numbers[i-1], numbers[i]) {
			c[numbers[i]] = c[numbers[i-1]]
		}
	}
	return c
}

// columns returns the codes of a result, column by column.
func (c codes) columns(t table) [][]int32 {
	out := make([][]int32, t.columns)
	for j := range out {
		out[j] = make([]int32, len(t.rows))
		for i, row := range t.rows {
			out[j][i] = c[row[j]]
		}
	}
	return out
}

// compareNumbers compares two numbers, each an int64 or a float64, exactly.
func compareNumbers(a, b any) int {
	x, wholeX := a.(int64)
	y, wholeY := b.(int64)
	if wholeX && wholeY {
		return cmp.Compare(x, y)
	}
	if c := cmp.Compare(float(a), float(b)); c != 0 || math.IsInf(float(a), 0) {
		return c
	}
	// The float64 of an int64 beyond 2^53 may be rounded, so the exact values may still
	// differ.
	switch {
	case wholeX && math.Abs(float(b)) < 1<<63:
		return cmp.Compare(x, int64(float(b)))
	case wholeY && math.Abs(float(a)) < 1<<63:
		return cmp.Compare(int64(float(a)), y)
	}
	return 0
}

func float(v any) float64 {
	if whole, ok := v.(int64); ok {
		return float64(whole)
	}
	return v.(float64)
}

// near reports whether two numbers count as equal.
func near(a, b any) bool {
	if compareNumbers(a, b) == 0 {
		return true
	}
	x, y := float(a), float(b)
	if x == math.Trunc(x) && y == math.Trunc(y) {
		return false
	}
	return math.Abs(x-y) <= tolerance*max(math.Abs(x), math.Abs(y))
}

func sorted(columns [][]int32) [][]int32 {
	out := make([][]int32, len(columns))
	for i, column := range columns {
		out[i] = slices.Sorted(slices.Values(column))
	}
	return out
}

// sameColumns reports whether two lists have the same columns, in any order.
func sameColumns(a, b [][]int32) bool {
	count := map[string]int{}
	for i := range a {
		count[key(a[i])]++
		count[key(b[i])]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

func key(column []int32) string {
	var b strings.Builder
	for _, code := range column {
		_, _ = b.Write(binary.LittleEndian.AppendUint32(nil, uint32(code)))
	}
	return b.String()
}

// matchingBudget is how many rows a matching may read. If many columns have the same
// values, the budget may be used up; such results count as different.
const matchingBudget = 50_000_000

// matching looks for an order of the right columns in which the right rows are the left
// ones.
type matching struct {
	left, right [][]int32
	taken       []bool // the right columns that have a left one already
	budget      int
}

// match assigns a right column to each left column from i on. Rows that agree in all
// columns before i have the same number in leftRows and rightRows.
func (m *matching) match(i int, leftRows, rightRows []int32) bool {
	if i == len(m.left) {
		return true
	}
	var tried [][]int32
	for j, column := range m.right {
		if m.taken[j] || slices.ContainsFunc(tried, func(t []int32) bool { return slices.Equal(t, column) }) {
			continue
		}
		tried = append(tried, column)
		if m.budget -= len(leftRows); m.budget < 0 {
			return false
		}
		newLeft, newRight, same := refine(leftRows, m.left[i], rightRows, column)
		if !same {
			continue
		}
		m.taken[j] = true
		if m.match(i+1, newLeft, newRight) {
			return true
		}
		m.taken[j] = false
	}
	return false
}

// refine numbers rows by their earlier number and by one more column. It reports whether
// both sides have the same number of rows with each number.
func refine(leftRows, left, rightRows, right []int32) (newLeft, newRight []int32, same bool) {
	type state struct{ before, code int32 }
	numbers := map[state]int32{}
	var count []int
	newLeft, newRight = make([]int32, len(left)), make([]int32, len(right))
	for i, code := range left {
		s := state{leftRows[i], code}
		n, known := numbers[s]
		if !known {
			n = int32(len(count))
			numbers[s] = n
			count = append(count, 0)
		}
		count[n]++
		newLeft[i] = n
	}
	for i, code := range right {
		n, known := numbers[state{rightRows[i], code}]
		if !known || count[n] == 0 {
			return nil, nil, false
		}
		count[n]--
		newRight[i] = n
	}
	return newLeft, newRight, true
}
