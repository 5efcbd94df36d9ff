// Package decisions describes in words what was decided about the versions of a run:
// first a plain sentence, then, separately, the numbers that led to it.
//
// It only describes what is recorded. It decides nothing.
package decisions

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
)

// Event describes a move of the promoted pointer, or a decision not to move it: a
// sentence, and the numbers that led to it.
type Event struct {
	At   time.Time
	Text string
	Why  string
}

// Events describes the moves, and the decisions that moved nothing, the newest first.
func Events(moves []record.Promotion, decisions []record.Decision) []Event {
	out := make([]Event, 0, len(moves)+len(decisions))
	for _, p := range moves {
		out = append(out, OfMove(p))
	}
	for _, d := range decisions {
		out = append(out, OfDecision(d))
	}
	slices.SortStableFunc(out, func(a, b Event) int { return a.At.Compare(b.At) })
	slices.Reverse(out)
	return out
}

// OfMove describes a move of the promoted pointer.
func OfMove(p record.Promotion) Event {
	version := fmt.Sprintf("version %d%s", p.Version, ofPolicy(p.Policy))
	text := fmt.Sprintf("%s promoted in place of version %d", version, p.Previous)
	switch {
	case p.Previous < 0:
		text = version + " promoted, the first"
	case p.Previous == p.Version:
		text = version + " stays promoted"
	}
	if p.Source != record.SourceGate {
		text += ", " + string(p.Source)
	}
	if p.By != "" {
		text += " by " + p.By
	}
	return Event{p.At, format.Shown(text), why(p.Reason, fmt.Sprintf("version %d promoted: ", p.Version))}
}

// OfDecision describes why a version was not promoted.
func OfDecision(d record.Decision) Event {
	text := fmt.Sprintf("version %d%s not promoted", d.Candidate, ofPolicy(d.Policy))
	if d.Verdict != "refused" {
		text += ", " + d.Verdict
	}
	return Event{d.At, format.Shown(text), why(d.Reason, fmt.Sprintf("version %d %s: ", d.Candidate, d.Verdict), fmt.Sprintf("version %d refused: ", d.Candidate), fmt.Sprintf("version %d promoted: ", d.Candidate))}
}

// ofPolicy returns the words that follow the number of a version of one of several policies. It
// is empty for the versions of a run.
func ofPolicy(policy string) string {
	if evaluation.IsOwn(policy) {
		return ""
	}
	return " of " + policy
}

// why returns a reason without the beginnings that the sentence already says.
func why(reason string, said ...string) string {
	for _, text := range said {
		reason = strings.TrimPrefix(reason, text)
	}
	return format.Reason(format.Shown(reason))
}
