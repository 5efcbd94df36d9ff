package page

import (
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/textdiff"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/prompts/search"
)

// The room for all texts of a page together: rows, marked pieces, and bytes.
const rowsOfTexts, piecesOfTexts, bytesOfTexts = 300, 1200, 64 << 10

// textPair is a prompt beside the one of the same name that it is compared with.
type textPair struct {
	Name string
	// Rows are the lines of both, if they differ.
	Rows []textRow
	// Same is the text, if there is nothing that differs.
	Same format.Clipped
	// Left is the number of rows that are not shown.
	Left int
}

// textRow is a line beside another, or says how many equal lines are left out.
type textRow struct {
	Equal       int // lines that are left out; the other fields are then zero
	Was, Is     []textdiff.Piece
	WasN, IsN   int // numbers of the lines, 0 for none
	Changed     bool
	Abbreviated bool // a line has more bytes
}

// textRoom is what is left of the room.
type textRoom struct{ rows, pieces, bytes int }

// besideTexts lays prompts beside those that they are compared with, those that differ first.
// Without the others, they are shown alone.
func besideTexts(others, prompts []search.Prompt) []textPair {
	room := textRoom{rowsOfTexts, piecesOfTexts, bytesOfTexts}
	was := map[string]string{}
	for _, p := range others {
		was[p.Name] = p.Text
	}
	differs := func(p search.Prompt) bool { old, ok := was[p.Name]; return others != nil && (!ok || old != p.Text) }
	var out []textPair
	for _, p := range prompts {
		if differs(p) {
			out = append(out, room.pair(p.Name, was[p.Name], p.Text))
		}
		delete(was, p.Name)
	}
	for _, p := range others { // those that are gone
		if old, ok := was[p.Name]; ok && !slices.ContainsFunc(prompts, func(one search.Prompt) bool { return one.Name == p.Name }) {
			out = append(out, room.pair(p.Name, old, ""))
		}
	}
	changed := len(out)
	for _, p := range prompts {
		if !slices.ContainsFunc(out[:changed], func(one textPair) bool { return one.Name == format.FirstLine(p.Name) }) {
			out = append(out, textPair{Name: format.FirstLine(p.Name), Same: room.clip(p.Text)})
		}
	}
	return out
}

func (r *textRoom) clip(text string) format.Clipped {
	c := format.Clip(text, r.bytes)
	r.bytes = max(0, r.bytes-len(c.Text))
	return c
}

// pair compares two texts.
func (r *textRoom) pair(name, was, is string) textPair {
	out := textPair{Name: format.FirstLine(name)}
	rows := textdiff.Lines(was, is)
	near := textdiff.Near(rows)
	for i := 0; i < len(rows); {
		if !near[i] {
			n := i
			for n < len(rows) && !near[n] {
				n++
			}
			out.Rows = append(out.Rows, textRow{Equal: n - i})
			i = n
			continue
		}
		if r.rows == 0 || r.bytes == 0 {
			out.Left = len(rows) - i
			break
		}
		r.rows--
		row := textRow{WasN: rows[i].Left.Number, IsN: rows[i].Right.Number, Changed: rows[i].Changed}
		var cutWas, cutIs bool
		row.Was, cutWas = r.line(rows[i].Left.Pieces)
		row.Is, cutIs = r.line(rows[i].Right.Pieces)
		row.Abbreviated = cutWas || cutIs
		out.Rows = append(out.Rows, row)
		i++
	}
	return out
}

// line makes the pieces of a line clean and cuts them to the room that is left. A line of too
// many pieces becomes one.
func (r *textRoom) line(pieces []textdiff.Piece) (out []textdiff.Piece, cut bool) {
	if len(pieces) > r.pieces {
		var b strings.Builder
		for _, p := range pieces {
			b.WriteString(p.Text)
		}
		pieces = []textdiff.Piece{{Text: b.String(), Changed: true}}
	}
	r.pieces -= min(r.pieces, len(pieces))
	for _, p := range pieces {
		c := r.clip(p.Text)
		out, cut = append(out, textdiff.Piece{Text: c.Text, Changed: p.Changed}), cut || c.More > 0
	}
	return out, cut
}
