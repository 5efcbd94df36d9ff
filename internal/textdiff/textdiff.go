// Package textdiff compares two texts for a reader: line by line, and word by word within a
// line that changed.
//
// It only compares. It neither escapes nor shortens what it returns, so whoever shows texts of
// others does both.
//
// What one may rely on: the pieces of all left lines together are the left text without its
// line feeds, and likewise at the right. Equal texts have no changed row. The time and the
// memory are bounded: of texts that differ in too many places, the part between their equal
// beginnings and ends counts as changed.
package textdiff

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxEdits bounds how many lines or words may differ for a comparison in detail.
const maxEdits = 1000

// Row is a line of the left text beside one of the right.
type Row struct {
	Left, Right Line
	// Changed says that the lines differ, or that one of them is missing.
	Changed bool
}

// Line is a line of a text.
type Line struct {
	Number int // from 1; 0 if the text has no line here
	Pieces []Piece
}

// Piece is a part of a line.
type Piece struct {
	Text string
	// Changed says that the other text does not have it.
	Changed bool
}

// Lines compares two texts. A text that is empty has no lines.
func Lines(left, right string) []Row {
	a, b := split(left), split(right)
	var out []Row
	i, k := 0, 0
	for _, m := range append(common(a, b), match{len(a), len(b)}) {
		out = append(out, between(a[i:m.left], b[k:m.right], i, k)...)
		if m.left < len(a) {
			out = append(out, Row{Left: Line{m.left + 1, whole(a[m.left], false)}, Right: Line{m.right + 1, whole(b[m.right], false)}})
		}
		i, k = m.left+1, m.right+1
	}
	return out
}

// linesAround is how many equal lines are shown around a change.
const linesAround = 3

// Near says which rows are worth showing: those that changed, and a few around each.
func Near(rows []Row) []bool {
	near := make([]bool, len(rows))
	for i, row := range rows {
		if row.Changed {
			for k := max(0, i-linesAround); k <= min(len(rows)-1, i+linesAround); k++ {
				near[k] = true
			}
		}
	}
	return near
}

func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func whole(line string, changed bool) []Piece {
	if line == "" {
		return nil
	}
	return []Piece{{line, changed}}
}

// between returns the rows of lines that have no equal line on the other side. The numbers of
// the lines begin after the given ones.
func between(a, b []string, left, right int) []Row {
	out := make([]Row, max(len(a), len(b)))
	for i := range out {
		out[i].Changed = true
		switch {
		case i >= len(b):
			out[i].Left = Line{left + i + 1, whole(a[i], true)}
		case i >= len(a):
			out[i].Right = Line{right + i + 1, whole(b[i], true)}
		default:
			one, other := words(a[i], b[i])
			out[i].Left, out[i].Right = Line{left + i + 1, one}, Line{right + i + 1, other}
		}
	}
	return out
}

// words compares two lines. Lines that have less than a third in common are shown as changed
// in whole, because single words that happen to be equal would only confuse.
func words(left, right string) (a, b []Piece) {
	one, other := tokens(left), tokens(right)
	same := common(one, other)
	equal := 0
	for _, m := range same {
		equal += len(one[m.left])
	}
	if 3*equal < max(len(left), len(right)) {
		return whole(left, true), whole(right, true)
	}
	keptA, keptB := make([]bool, len(one)), make([]bool, len(other))
	for _, m := range same {
		keptA[m.left], keptB[m.right] = true, true
	}
	return pieces(left, one, keptA), pieces(right, other, keptB)
}

// pieces returns a line in as few pieces as possible, given which of its words were kept.
func pieces(line string, words []string, kept []bool) []Piece {
	var out []Piece
	for i := 0; i < len(words); {
		n, size := i, 0
		for ; n < len(words) && kept[n] == kept[i]; n++ {
			size += len(words[n])
		}
		out = append(out, Piece{line[:size], !kept[i]})
		line, i = line[size:], n
	}
	return out
}

// tokens splits a line into words, spaces, and single other characters.
func tokens(line string) []string {
	var out []string
	for len(line) > 0 {
		r, n := utf8.DecodeRuneInString(line)
		if kind := kindOf(r); kind != other {
			for n < len(line) {
				next, size := utf8.DecodeRuneInString(line[n:])
				if kindOf(next) != kind {
					break
				}
				n += size
			}
		}
		out = append(out, line[:n])
		line = line[n:]
	}
	return out
}

// The kinds of characters.
const (
	other = iota
	word
	space
)

func kindOf(r rune) int {
	switch {
	case r == utf8.RuneError:
		return other
	case unicode.IsLetter(r), unicode.IsDigit(r), unicode.IsMark(r), r == '_':
		return word
	case unicode.IsSpace(r):
		return space
	}
	return other
}

// match says that two lists have an equal element at these places.
type match struct{ left, right int }

// common returns a longest common subsequence of two lists, in order (Myers 1986, "An O(ND)
// difference algorithm and its variations"). If they differ in more than maxEdits elements, it
// returns only their equal beginning and end.
func common(a, b []string) []match {
	first := 0
	for first < min(len(a), len(b)) && a[first] == b[first] {
		first++
	}
	last := 0
	for last < min(len(a), len(b))-first && a[len(a)-1-last] == b[len(b)-1-last] {
		last++
	}
	var out []match
	for i := range first {
		out = append(out, match{i, i})
	}
	for _, m := range shortest(a[first:len(a)-last], b[first:len(b)-last]) {
		out = append(out, match{first + m.left, first + m.right})
	}
	for i := last; i > 0; i-- {
		out = append(out, match{len(a) - i, len(b) - i})
	}
	return out
}

// shortest returns the matches on a path of the fewest edits from a to b; none if there are
// more than maxEdits.
func shortest(a, b []string) []match {
	most := min(len(a)+len(b), maxEdits)
	// reach says how far in a the paths come on a diagonal, which is the place in a minus the
	// place in b. Diagonal 0 is at zero.
	reach, zero := make([]int, 2*most+3), most+1
	var rounds [][]int // what reach was before each round, around diagonal 0
	for edits := 0; edits <= most; edits++ {
		rounds = append(rounds, slices.Clone(reach[zero-edits-1:zero+edits+2]))
		for k := -edits; k <= edits; k += 2 {
			_, i := begin(reach, zero, k, edits)
			for i < len(a) && i-k < len(b) && a[i] == b[i-k] {
				i++
			}
			reach[zero+k] = i
			if i >= len(a) && i-k >= len(b) {
				return walkBack(rounds, i, k)
			}
		}
	}
	return nil
}

// begin returns where the last edit leads that ends on a diagonal, and the diagonal from which
// it comes.
func begin(reach []int, zero, k, edits int) (from, i int) {
	if k == -edits || k != edits && reach[zero+k-1] < reach[zero+k+1] {
		return k + 1, reach[zero+k+1]
	}
	return k - 1, reach[zero+k-1] + 1
}

// walkBack returns the matches on the path that ends at place i of a on a diagonal.
func walkBack(rounds [][]int, i, k int) []match {
	var out []match
	for edits := len(rounds) - 1; edits >= 0; edits-- {
		reach, zero := rounds[edits], edits+1
		from, start := begin(reach, zero, k, edits)
		for i > start {
			i--
			out = append(out, match{i, i - k})
		}
		i, k = reach[zero+from], from
	}
	slices.Reverse(out)
	return out
}
