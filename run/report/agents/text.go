package agents

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/run/evaluation"
)

// maxReasons is how many reasons a text has for what could not be graded again.
const maxReasons = 5

// unknown stands for an agent whose requests can't be read.
const unknown = "unknown"

// page writes the lines of a text.
type page struct{ readable.Lines }

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	p := &page{readable.Lines{W: w}}
	p.Line("\nReplies of each agent by themselves, as if they were the results; intervals of %g %%, by resampling %s", 100*r.Level, cmp.Or(r.Cluster, "tasks"))
	if r.NotGraded != "" {
		p.Line("  %s", r.NotGraded)
	}
	if len(r.Evaluations) == 0 {
		p.Line("  no evaluation is on record")
	}
	for _, e := range r.Evaluations {
		p.evaluation(e)
	}
	return p.Err
}

func (p *page) evaluation(e Evaluation) {
	temperature := ""
	if e.Greedy {
		temperature = ", at temperature 0"
	}
	p.Line("\n  version %d on %s%s: %s, mean reward %s", e.Version, e.Split, temperature, readable.Count(e.Attempts, "attempt"), e.Mean)
	p.Line("    %s", e.Ends.text(e.Attempts))
	if e.Ungraded > 0 {
		p.Line("    the replies of %s can't be graded again:", readable.Count(e.Ungraded, "attempt"))
		for _, reason := range e.Reasons[:min(len(e.Reasons), maxReasons)] {
			p.Line("      %s", reason)
		}
		if more := len(e.Reasons) - maxReasons; more > 0 {
			p.Line("      … and %d more; --json has all", more)
		}
	}
	if len(e.Agents) == 0 {
		return
	}
	width := len(unknown)
	for _, a := range e.Agents {
		width = max(width, len(a.Agent))
	}
	p.Line("    %-*s  %-5s  %8s  %-20s  %-20s  %-20s", width, "agent", "reply", "attempts", "as written", "without prose", "the attempts")
	for _, a := range e.Agents {
		p.row(width, a, "first", a.First)
		if a.Last != nil && a.Replies > a.Attempts {
			p.row(width, a, "last", a.Last)
		}
	}
}

func (p *page) row(width int, a Agent, which string, r *Reply) {
	if r == nil {
		r, which = &Reply{}, ""
	}
	p.Line("    %-*s  %-5s  %8d  %-20s  %-20s  %-20s", width, cmp.Or(a.Agent, unknown), which, a.Attempts, orNone(r.AsWritten), orNone(r.WithoutProse), orNone(a.Earned))
}

func orNone(e *evaluation.Estimate) string {
	if e == nil {
		return "-"
	}
	return e.String()
}

// text returns the classes that have attempts, with their shares.
func (e Ends) text(all int) string {
	var out []string
	for _, one := range []struct {
		name  string
		count int
	}{
		{"right", e.Right}, {"prose around a right answer", e.Prose}, {"no reply", e.NoReply}, {"cut off", e.CutOff}, {"agent failed", e.Failed},
		{"no tool call read", e.NoToolCall}, {"wrong otherwise", e.Wrong},
	} {
		if one.count > 0 {
			out = append(out, fmt.Sprintf("%s %d (%.0f %%)", one.name, one.count, 100*float64(one.count)/float64(all)))
		}
	}
	return strings.Join(out, ", ")
}
