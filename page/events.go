package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
)

// event is what happened to the promoted pointer, or why nothing did: a sentence, and the
// numbers behind it.
type event struct {
	At   time.Time
	Text string
	Why  string
}

// eventsOf lays moves and decisions that moved nothing out, the newest first.
func eventsOf(moves []record.Promotion, decisions []record.Decision) []event {
	out := make([]event, 0, len(moves)+len(decisions))
	for _, p := range moves {
		out = append(out, eventOfMove(p))
	}
	for _, d := range decisions {
		out = append(out, eventOfDecision(d))
	}
	slices.SortStableFunc(out, func(a, b event) int { return a.At.Compare(b.At) })
	slices.Reverse(out)
	return out
}

func eventOfMove(p record.Promotion) event {
	text := fmt.Sprintf("version %d promoted in place of version %d", p.Version, p.Previous)
	switch {
	case p.Previous < 0:
		text = fmt.Sprintf("version %d promoted, the first", p.Version)
	case p.Previous == p.Version:
		text = fmt.Sprintf("version %d stays promoted", p.Version)
	}
	if p.Source != record.SourceGate {
		text += ", " + string(p.Source)
	}
	if p.By != "" {
		text += " by " + p.By
	}
	return event{p.At, format.Shown(text), why(p.Reason, fmt.Sprintf("version %d promoted: ", p.Version))}
}

func eventOfDecision(d record.Decision) event {
	text := fmt.Sprintf("version %d not promoted", d.Candidate)
	if d.Verdict != "refused" {
		text += ", " + d.Verdict
	}
	return event{d.At, format.Shown(text), why(d.Reason, fmt.Sprintf("version %d %s: ", d.Candidate, d.Verdict), fmt.Sprintf("version %d refused: ", d.Candidate), fmt.Sprintf("version %d promoted: ", d.Candidate))}
}

// why is a reason without what the sentence before it says.
func why(reason string, said ...string) string {
	for _, text := range said {
		reason = strings.TrimPrefix(reason, text)
	}
	return format.Reason(format.Shown(reason))
}
