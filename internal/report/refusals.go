package report

import (
	"fmt"

	"github.com/fulgurite/fulgurite/trace"
)

// Refusal is the refused calls of a run with one code.
type Refusal struct {
	trace.RefusalCount
	// Attempt is the address of the latest attempt that was refused so.
	Attempt string `json:"attempt"`
}

// Refusals makes lines of a report of what a store counted.
func Refusals(counts []trace.RefusalCount) []Refusal {
	all := make([]Refusal, len(counts))
	for i, c := range counts {
		all[i] = Refusal{c, c.Address.String()}
	}
	return all
}

// Text says it in one line.
func (r Refusal) Text() string {
	return fmt.Sprintf("%s: %s of %s, last %s: %s", r.Code, counted(r.Count, "call"), counted(r.Attempts, "attempt"), r.Attempt, r.Message)
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func (p *page) writeRefusals(refusals []Refusal) {
	if len(refusals) == 0 {
		return
	}
	p.line("  refused model calls, which are not among those recorded:")
	p.lines(len(refusals), func(i int) { p.line("    %s", refusals[i].Text()) })
}
