// Package faults puts together what one fault did: the attempts that were cut off at the same
// time, for the same reason, in one run.
//
// It is a guess by time and words, since nothing on record says which process an attempt died
// with. A fault that cut no attempt off leaves nothing on record, and is not here.
package faults

import (
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
)

// Fault is a fault that cut off attempts of one run.
type Fault struct {
	Text     string // what ended them
	Attempts []record.Interruption
	// From is when the first of these attempts last gave a sign of life. To is when the
	// last of the attempts that replaced them began.
	From, To time.Time
}

// Took returns the time to recover, which is the time until every attempt had begun
// again.
func (f Fault) Took() time.Duration { return max(0, f.To.Sub(f.From)) }

// Group groups the interruptions of one run that overlap in time and have the same text.
// The newest fault comes first. Within a fault, the earliest attempt comes first.
func Group(all []record.Interruption) []Fault {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b record.Interruption) int { return a.Last.Compare(b.Last) })
	var out []Fault
	for _, i := range sorted {
		text := "lost, made again"
		if i.Error != "" {
			text = format.FirstLine(i.Error)
		}
		at := slices.IndexFunc(out, func(f Fault) bool { return f.Text == text && !i.Last.After(f.To) })
		if at < 0 {
			out, at = append(out, Fault{Text: text, From: i.Last}), len(out)
		}
		f := &out[at]
		f.Attempts = append(f.Attempts, i)
		if i.Again.After(f.To) {
			f.To = i.Again
		}
	}
	slices.Reverse(out)
	return out
}
