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

// tolerance is how many units in the last place two numbers may differ, unless both are
// whole. That is what the order of a few sums and products changes.
const tolerance = 4

// keyOf returns a text that only rows with the same values of the same types share.
func keyOf(row []any) string {
	var b strings.Builder
	for _, v := range row {
		var text string
		switch v := v.(type) {
		case nil:
			b.WriteByte('n')
		case int64:
			b.WriteByte('i')
			b.Write(binary.LittleEndian.AppendUint64(nil, uint64(v)))
		case float64:
			b.WriteByte('f')
			b.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(v)))
		case string:
			b.WriteByte('t')
			text = v
		case blob:
			b.WriteByte('b')
			text = string(v)
		}
		b.Write(binary.AppendUvarint(nil, uint64(len(text))))
		b.WriteString(text)
	}
	return b.String()
}

// set is the rows of a gold result, regardless of their order and of how often each
// occurs. The order of columns counts.
type set struct {
	codes *codes
	rows  map[string]bool
}

func newSet(gold table) *set {
	s := &set{codes: newCodes(gold), rows: map[string]bool{}}
	for _, row := range gold.rows {
		key, _ := s.key(row)
		s.rows[key] = true
	}
	return s
}

// key returns a text for a row, which equal rows share, and whether all of its values are
// in the gold result.
func (s *set) key(row []any) (string, bool) {
	column := make([]int32, len(row))
	for i, v := range row {
		code, known := s.codes.find(v)
		if !known {
			return "", false
		}
		column[i] = code
	}
	return key(column), true
}

// equal reports whether a result is the same as that of the gold query apart from the
// order of columns and, unless ordered, of rows. Two results without rows are the same.
func equal(gold, other table, ordered bool) bool {
	switch {
	case len(gold.rows) != len(other.rows):
		return false
	case len(gold.rows) == 0:
		return true
	case gold.columns != other.columns:
		return false
	}
	codes := newCodes(gold)
	codes.add(other)
	left, right := codes.columns(gold), codes.columns(other)
	if ordered {
		return sameColumns(left, right)
	}
	if !sameColumns(sorted(left), sorted(right)) {
		return false
	}
	m := matching{left: left, right: right, taken: make([]bool, len(right)), budget: matchingBudget}
	rows := len(gold.rows)
	return m.match(0, make([]int32, rows), make([]int32, rows))
}

// codes maps values to numbers. Equal values have equal numbers. A number that differs
// from one of the gold result by rounding has the code of that number, the nearest one.
// Two numbers of the gold result never share a code unless they are exactly equal, so
// that rounding does not add up over a chain of neighbors.
type codes struct {
	of      map[any]int32
	numbers []any // the different numbers of the gold result, ascending
}

// newCodes returns codes for the values of a gold result.
func newCodes(gold table) *codes {
	c := &codes{of: map[any]int32{}}
	for _, row := range gold.rows {
		for _, v := range row {
			if _, known := c.of[v]; known {
				continue
			}
			c.of[v] = int32(len(c.of))
			if isNumber(v) {
				c.numbers = append(c.numbers, v)
			}
		}
	}
	slices.SortFunc(c.numbers, compareNumbers)
	for i := 1; i < len(c.numbers); i++ {
		if a, b := c.numbers[i-1], c.numbers[i]; compareNumbers(a, b) == 0 { // such as 1 and 1.0
			c.of[b] = c.of[a]
		}
	}
	return c
}

// add adds codes for the values of another result.
func (c *codes) add(other table) {
	for _, row := range other.rows {
		for _, v := range row {
			if code, known := c.find(v); known {
				c.of[v] = code
			} else {
				c.of[v] = int32(len(c.of))
			}
		}
	}
}

// find returns the code of a value that has one, or that differs by rounding from a number
// that has one.
func (c *codes) find(v any) (code int32, known bool) {
	if code, known = c.of[v]; known || !isNumber(v) {
		return code, known
	}
	at, exact := slices.BinarySearchFunc(c.numbers, v, compareNumbers)
	if exact {
		return c.of[c.numbers[at]], true
	}
	best := math.Inf(1)
	for _, i := range []int{at - 1, at} {
		if i < 0 || i == len(c.numbers) || !near(c.numbers[i], v) {
			continue
		}
		if distance := math.Abs(float(c.numbers[i]) - float(v)); distance < best {
			best, code, known = distance, c.of[c.numbers[i]], true
		}
	}
	return code, known
}

func isNumber(v any) bool {
	switch v.(type) {
	case int64, float64:
		return true
	}
	return false
}

// columns returns the codes of a result, column by column.
func (c *codes) columns(t table) [][]int32 {
	out := make([][]int32, t.columns)
	for j := range out {
		out[j] = make([]int32, len(t.rows))
		for i, row := range t.rows {
			out[j][i] = c.of[row[j]]
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

// near reports whether two numbers that are not equal differ only by rounding.
func near(a, b any) bool {
	x, y := float(a), float(b)
	if x == math.Trunc(x) && y == math.Trunc(y) || math.IsInf(x, 0) || math.IsInf(y, 0) {
		return false
	}
	larger := max(math.Abs(x), math.Abs(y))
	unit := math.Nextafter(larger, math.Inf(1)) - larger
	return math.Abs(x-y) <= tolerance*unit
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

// maxExpanded is how many references to tables of WITH a query may have after expansion,
// when each is replaced by its definition. SQLite expands them while it compiles, where
// no limit on steps or time ends it: with twenty tables that each refer twice to the one
// before, there are a million references.
const maxExpanded = 500

// expanded returns the number of references to tables of WITH in a query, counted after
// SQLite's expansion. If it is larger than maxExpanded, the number may be wrong, but is
// larger than maxExpanded, too.
func expanded(query string) int {
	tokens := tokensOf(query)
	sizes := map[string]int{} // references in each defined table, and one for the table itself
	type definition struct {
		name         string
		depth, count int
	}
	open := []definition{{}}
	depth := 0
	for i, t := range tokens {
		top := &open[len(open)-1]
		switch {
		case t == "(":
			if name := defined(tokens[:i]); name != "" {
				open = append(open, definition{name: name, depth: depth})
			}
			depth++
		case t == ")":
			depth--
			if len(open) > 1 && depth == top.depth {
				sizes[top.name] = 1 + top.count
				count := top.count
				open = open[:len(open)-1]
				if count > maxExpanded {
					return count
				}
			}
		case i+1 < len(tokens) && tokens[i+1] == ".": // a column of the table
		default:
			top.count = min(top.count+sizes[plainName(t)], 2*maxExpanded)
		}
	}
	return open[0].count
}

// tokensOf returns the tokens of a query that are neither blanks nor comments.
func tokensOf(query string) []string {
	var out []string
	for query != "" {
		n := token(query)
		t := query[:n]
		query = query[n:]
		if !blank(t) {
			out = append(out, t)
		}
	}
	return out
}

// defined returns the name of a table that WITH defines, if the tokens before an opening
// bracket are such a definition, as in: name (column) AS NOT MATERIALIZED. Otherwise it
// returns "".
func defined(tokens []string) string {
	i := len(tokens) - 1
	if i >= 0 && strings.EqualFold(tokens[i], "materialized") {
		if i--; i >= 0 && strings.EqualFold(tokens[i], "not") {
			i--
		}
	}
	if i < 1 || !strings.EqualFold(tokens[i], "as") {
		return ""
	}
	if i--; tokens[i] == ")" {
		for i > 0 && tokens[i] != "(" {
			i--
		}
		i--
	}
	if i < 0 {
		return ""
	}
	return plainName(tokens[i])
}

// plainName returns a name without quotes, in lower case.
func plainName(t string) string { return strings.ToLower(strings.Trim(t, "\"`[]'")) }
