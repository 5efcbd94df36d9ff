package timing

import (
	"fmt"
	"io"
	"strings"

	"github.com/fulgurite/fulgurite/internal/readable"
)

// maxSteps is how many steps, the newest ones, a text shows one by one.
const maxSteps = 20

// page writes the lines of a text.
type page struct{ readable.Lines }

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	p := &page{readable.Lines{W: w}}
	if r.Mean == nil {
		p.Line("\nWhere the time went: no step is finished")
	} else {
		p.mean(*r.Mean, len(r.Steps))
		p.steps(r.Steps)
	}
	if u := r.First; u != nil {
		p.Line("\nVersion 0: %.2f s, of it gradients %.2f, optimizer %.2f, loading %.2f, saving %.2f", u.Seconds, u.Gradient, u.Optimizer, u.Load, u.Save)
	}
	p.evaluations(r.Evaluations)
	return p.Err
}

// row is a line of the table of parts. Attempts is its number of attempt-seconds, if it
// has one.
type row struct {
	indent   int
	name     string
	seconds  float64
	attempts *float64
}

func rolloutRows(r Rollouts, a *Rollouts) []row {
	return []row{
		{1, "calls: decoding", r.Decode, &a.Decode},
		{1, "calls: prefill", r.Prefill, &a.Prefill},
		{1, "calls: queue of the sampler", r.Queued, &a.Queued},
		{1, "calls: other", r.Call, &a.Call},
		{1, "grading", r.Grading, &a.Grading},
		{1, "agents between calls", r.Between, &a.Between},
		{1, "agents before their first call", r.Starting, &a.Starting},
		{1, "agents after their last call", r.Ending, &a.Ending},
		{1, "no attempt under way", r.Idle, nil},
	}
}

func (p *page) mean(s Step, n int) {
	of := "1 finished step"
	if n > 1 {
		of = fmt.Sprintf("mean of %d finished steps", n)
	}
	p.Line("\nWhere the time of a step went: %s", of)
	p.Line("  %-34s  %9s  %6s  %15s", "", "seconds", "share", "attempt-seconds")
	rows := []row{{0, "rollouts", s.Rollouts.Seconds, &s.Attempts.Seconds}}
	rows = append(rows, rolloutRows(s.Rollouts, &s.Attempts.Rollouts)...)
	rows = append(rows,
		row{0, "batch", s.Batch.Seconds, nil},
		row{1, "waiting, scores", s.Batch.Wait, nil},
		row{1, "credit and batch", s.Batch.Make, nil},
		row{0, "update", s.Update.Seconds, nil},
		row{1, "waiting", s.Update.Wait, nil},
		row{1, "loading the parent", s.Update.Load, nil},
		row{1, "scoring the batch", s.Update.Score, nil},
		row{1, "forward and backward", s.Update.Gradient, nil},
		row{1, "optimizer", s.Update.Optimizer, nil},
		row{1, "writing files", s.Update.Save, nil},
		row{1, "other", s.Update.Other, nil},
		row{0, "step", s.Seconds, nil},
	)
	for _, r := range rows {
		p.row(r, s.Seconds)
	}
	p.Line("  %s and %s a step; %s of their prompts shared with others", readable.Count(s.Attempts.Count, "attempt"),
		readable.Count(s.Attempts.Calls, "call"), readable.Count(s.Attempts.SharedTokens, "token"))
	p.Line("  until the next step: %.2f s, of it evaluation %.2f", s.Next.Seconds, s.Next.Evaluation)
}

// leastShown is how many seconds a part of a step has at least that has a line: less is only
// the time of asking the clock.
const leastShown = 1e-5

// row writes a row with a part of a whole.
func (p *page) row(r row, whole float64) {
	if r.indent > 0 && r.seconds < leastShown && (r.attempts == nil || *r.attempts < leastShown) {
		return
	}
	share, attempts := "", ""
	if whole > 0 {
		share = fmt.Sprintf("%.1f %%", 100*r.seconds/whole)
	}
	if r.attempts != nil {
		attempts = fmt.Sprintf("%.2f", *r.attempts)
	}
	p.Line("  %-34s  %9.2f  %6s  %15s", strings.Repeat("  ", r.indent)+r.name, r.seconds, share, attempts)
}

func (p *page) steps(all []Step) {
	p.Line("\n  %5s  %9s  %9s  %9s  %9s  %9s", "step", "seconds", "rollouts", "batch", "update", "next")
	if more := len(all) - maxSteps; more > 0 {
		p.Line("  … %d before; --json has all", more)
	}
	for _, s := range all[max(0, len(all)-maxSteps):] {
		p.Line("  %5d  %9.2f  %9.2f  %9.2f  %9.2f  %9.2f", s.Step, s.Seconds, s.Rollouts.Seconds, s.Batch.Seconds, s.Update.Seconds, s.Next.Seconds)
	}
}

func (p *page) evaluations(all []Evaluation) {
	if len(all) == 0 {
		return
	}
	p.Line("\nEvaluations\n  %7s  %-5s  %9s  %8s  %9s  %9s  %9s", "version", "split", "seconds", "attempts", "decoding", "grading", "starting")
	for _, e := range all[max(0, len(all)-maxSteps):] {
		r := e.Rollouts
		p.Line("  %7d  %-5s  %9.2f  %8d  %9.2f  %9.2f  %9.2f", e.Version, e.Split, r.Seconds, e.Attempts.Count, r.Decode, r.Grading, r.Starting)
	}
}
