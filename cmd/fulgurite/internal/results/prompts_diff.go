package results

import (
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/textdiff"
	"github.com/fulgurite/fulgurite/run/promptsearch"
)

// diff shows what changed between two candidates.
func (c *Prompts) diff(t *terminal.Terminal, found *promptsearch.Search) error {
	from, err := choose(found, c.Which[0])
	if err != nil {
		return err
	}
	to, err := choose(found, c.Which[1])
	if err != nil {
		return err
	}
	out := promptsDiff{From: from.Name, To: to.Name, Changed: []textChange{}}
	for i, p := range from.Texts { // all candidates have the same prompts in the same order
		if after := to.Texts[i].Text; after != p.Text {
			out.Changed = append(out.Changed, textChange{p.Name, p.Text, after})
		}
	}
	if c.JSON {
		return t.JSON(out)
	}
	if len(out.Changed) == 0 {
		t.Printf("%s and %s have the same texts.\n", out.From, out.To)
	}
	for _, change := range out.Changed {
		t.Printf("%s", lineDiff(change, out.From, out.To, t.Style.Colour))
	}
	return nil
}

// lineDiff returns the lines of a text that changed and a few around them, in the unified
// format. In colour, the words that changed are in reverse video. A model may have written
// the texts, so their control characters are escaped.
func lineDiff(c textChange, from, to string, colour bool) string {
	d := diffText{colour: colour}
	fmt.Fprintf(&d, "--- %s, %s\n+++ %s, %s\n", c.Name, from, c.Name, to)
	rows := textdiff.Lines(c.Before, c.After)
	near := textdiff.Near(rows)
	before, after := 0, 0 // lines in front of the row
	for i := 0; i < len(rows); {
		n := i
		for n < len(rows) && near[n] == near[i] {
			n++
		}
		left, right := linesOf(rows[i:n])
		if near[i] {
			fmt.Fprintf(&d, "@@ -%s +%s @@\n", lineRange(before, left), lineRange(after, right))
			d.rows(rows[i:n])
		}
		before, after, i = before+left, after+right, n
	}
	return d.String()
}

// linesOf counts the lines of both texts in rows.
func linesOf(rows []textdiff.Row) (left, right int) {
	for _, row := range rows {
		left += min(row.Left.Number, 1)
		right += min(row.Right.Number, 1)
	}
	return left, right
}

// lineRange writes n lines after the given number of lines, as in the unified format.
func lineRange(before, n int) string {
	switch n {
	case 0:
		return fmt.Sprintf("%d,0", before)
	case 1:
		return fmt.Sprint(before + 1)
	}
	return fmt.Sprintf("%d,%d", before+1, n)
}

// diffText is a diff as text.
type diffText struct {
	strings.Builder
	colour bool
}

// rows writes rows that follow each other. Of those that changed in a row, all old lines come
// before all new ones.
func (d *diffText) rows(rows []textdiff.Row) {
	const red, green = 31, 32
	for i := 0; i < len(rows); {
		if !rows[i].Changed {
			d.line(" ", rows[i].Left.Pieces, 0)
			i++
			continue
		}
		n := i
		for ; n < len(rows) && rows[n].Changed; n++ {
			if rows[n].Left.Number > 0 {
				d.line("-", rows[n].Left.Pieces, red)
			}
		}
		for ; i < n; i++ {
			if rows[i].Right.Number > 0 {
				d.line("+", rows[i].Right.Pieces, green)
			}
		}
	}
}

// line writes a line with its sign, in a colour of the terminal or, with 0, in none.
func (d *diffText) line(sign string, pieces []textdiff.Piece, colour int) {
	coloured := d.colour && colour > 0
	if coloured {
		fmt.Fprintf(d, "\x1b[%dm", colour)
	}
	d.WriteString(sign)
	for _, p := range pieces {
		text := terminal.Escape(p.Text)
		if coloured && p.Changed && len(pieces) > 1 {
			text = "\x1b[7m" + text + "\x1b[27m"
		}
		d.WriteString(text)
	}
	if coloured {
		d.WriteString("\x1b[0m")
	}
	d.WriteString("\n")
}
