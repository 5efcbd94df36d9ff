package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/record"
)

// Line is something that happened to the promoted pointer, or was decided about it.
type Line struct {
	At   time.Time
	Text string
}

// History lays moves and decisions that moved nothing out in the order in which
// they came.
func History(moves []record.Promotion, decisions []record.Decision) []Line {
	lines := make([]Line, 0, len(moves)+len(decisions))
	for _, p := range moves {
		lines = append(lines, Line{p.At, Move(p)})
	}
	for _, d := range decisions {
		lines = append(lines, Line{d.At, fmt.Sprintf("%s: %s", d.Verdict, d.Reason)})
	}
	slices.SortStableFunc(lines, func(a, b Line) int { return a.At.Compare(b.At) })
	return lines
}

// Move says a move of the promoted pointer in a sentence.
func Move(p record.Promotion) string {
	what := fmt.Sprintf("version %d → %d", p.Previous, p.Version)
	switch {
	case p.Previous < 0:
		what = fmt.Sprintf("version %d", p.Version)
	case p.Previous == p.Version:
		what = fmt.Sprintf("version %d, as before", p.Version)
	}
	text := fmt.Sprintf("%s: %s", p.Source, what)
	if p.By != "" {
		text += " by " + p.By
	}
	if p.Reason != "" {
		text += fmt.Sprintf(" (%s)", p.Reason)
	}
	return text
}
