package textdiff_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/internal/textdiff"
)

// shown writes rows as text: what is only at the left in [], what is only at the right in {}.
func shown(rows []textdiff.Row) string {
	var b strings.Builder
	side := func(l textdiff.Line, open, end string) {
		if l.Number == 0 {
			return
		}
		fmt.Fprintf(&b, "%d ", l.Number)
		for _, p := range l.Pieces {
			if p.Changed {
				b.WriteString(open + p.Text + end)
			} else {
				b.WriteString(p.Text)
			}
		}
	}
	for _, r := range rows {
		side(r.Left, "[", "]")
		b.WriteString(" | ")
		side(r.Right, "{", "}")
		b.WriteString("\n")
	}
	return b.String()
}

func TestChangesAreShownByLineAndByWord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ left, right, want string }{
		"equal":     {"a\nb", "a\nb", "1 a | 1 a\n2 b | 2 b\n"},
		"a word":    {"Sort the word.", "Sort each word.", "1 Sort [the] word. | 1 Sort {each} word.\n"},
		"added":     {"a\nc", "a\nb\nc", "1 a | 1 a\n | 2 {b}\n2 c | 3 c\n"},
		"removed":   {"a\nb\nc", "a\nc", "1 a | 1 a\n2 [b] | \n3 c | 2 c\n"},
		"unlike":    {"one two three", "entirely different here", "1 [one two three] | 1 {entirely different here}\n"},
		"nothing":   {"", "a", " | 1 {a}\n"},
		"appended":  {"Sort the word.", "Sort the word. There are colours.", "1 Sort the word. | 1 Sort the word.{ There are colours.}\n"},
		"an end":    {"a", "a\n", "1 a | 1 a\n | 2 \n"},
		"two lines": {"keep\nold one\nkeep too", "keep\nnew one\nand more\nkeep too", "1 keep | 1 keep\n2 [old] one | 2 {new} one\n | 3 {and more}\n3 keep too | 4 keep too\n"},
	} {
		require.Empty(t, cmp.Diff(c.want, shown(textdiff.Lines(c.left, c.right))), name)
	}
}

// text puts together the pieces of one side.
func text(rows []textdiff.Row, side func(textdiff.Row) textdiff.Line) string {
	var lines []string
	for _, r := range rows {
		if l := side(r); l.Number > 0 {
			line := ""
			for _, p := range l.Pieces {
				line += p.Text
			}
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

func TestBothTextsAreThereInWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.StringOf(rapid.RuneFrom([]rune("ab \n\u202e\u0301.")))
		left, right := draw.Draw(t, "left"), draw.Draw(t, "right")+rapid.SampledFrom([]string{"", "\xff", "ab"}).Draw(t, "end")
		rows := textdiff.Lines(left, right)
		if text(rows, func(r textdiff.Row) textdiff.Line { return r.Left }) != left || text(rows, func(r textdiff.Row) textdiff.Line { return r.Right }) != right {
			t.Fatalf("%q and %q became\n%s", left, right, shown(rows))
		}
		changed := false
		for _, r := range rows {
			changed = changed || r.Changed
			if !r.Changed && len(r.Left.Pieces) != len(r.Right.Pieces) {
				t.Fatalf("a row that did not change has two texts:\n%s", shown(rows))
			}
		}
		if changed == (left == right) {
			t.Fatalf("%q and %q: changed is %v", left, right, changed)
		}
	})
}

func TestLargeTextsThatDifferEverywhereAreCompared(t *testing.T) {
	t.Parallel()
	var a, b strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&a, "a%d\n", i)
		fmt.Fprintf(&b, "b%d ", i)
	}
	rows := textdiff.Lines("begin\n"+a.String()+"end", "begin\n"+b.String()+"\nend")
	require.False(t, rows[0].Changed)
	require.False(t, rows[len(rows)-1].Changed)
	require.True(t, rows[1].Changed)
	long := strings.Repeat("word ", 100000)
	rows = textdiff.Lines(long+"old", long+"new")
	require.Len(t, rows, 1)
	require.Equal(t, []textdiff.Piece{{Text: long}, {Text: "new", Changed: true}}, rows[0].Right.Pieces)
}
