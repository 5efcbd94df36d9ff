package evaluation

import (
	"fmt"
	"io"

	"github.com/fulgurite/fulgurite/internal/readable"
)

// maxChanges is how many tasks a text lists; the JSON has all.
const maxChanges = 10

// page writes the lines of a text.
type page struct{ readable.Lines }

// String returns the mean and its interval.
func (e Estimate) String() string { return fmt.Sprintf("%.3f [%.3f, %.3f]", e.Mean, e.Low, e.High) }

// WriteText writes a table for people. Each line begins with indent.
func (p *Passes) WriteText(w io.Writer, indent string) error {
	out := &page{readable.Lines{W: w}}
	out.Line("%s%s × %s, success is a reward of at least %g; intervals of %g %%, by resampling tasks",
		indent, readable.Count(p.Tasks, "task"), readable.Count(p.Samples, "sample"), p.Success, 100*p.Level)
	out.Line("%s%4s  %-22s  %-22s", indent, "k", "pass@k, one of k", "pass^k, all of k")
	for _, k := range p.ByK {
		out.Line("%s%4d  %-22s  %-22s", indent, k.K, k.At, k.All)
	}
	return out.Err
}

// WriteText writes the comparison for people.
func (c Comparison) WriteText(w io.Writer) error {
	p := &page{readable.Lines{W: w}}
	whose := "tasks'"
	if c.Cluster != "" {
		whose = fmt.Sprintf("%d clusters'", c.Clusters)
	}
	p.Line("A  %s", c.A)
	p.Line("B  %s", c.B)
	p.Line("\nB − A over %s: %+.3f, %g %% interval [%+.3f, %+.3f], standard error %.3f",
		c.over(), c.Difference.Mean, 100*c.Level, c.Difference.Low, c.Difference.High, c.StdError)
	p.Line("p = %.3g, two-sided, by flipping the signs of the %s differences", c.PValue, whose)
	p.Line("B is better on %s, worse on %d, equal on %d", readable.Count(c.Wins, "task"), c.Losses, c.Ties)
	for _, r := range c.Remarks {
		p.Line("differs too: %s", r)
	}
	if changed := c.Wins + c.Losses; changed > 0 {
		p.Line("\n%8s  %8s  %8s  task", "A", "B", "B − A")
		for _, t := range c.ByTask[:min(changed, maxChanges)] {
			p.Line("%8.3f  %8.3f  %+8.3f  %s", t.A, t.B, t.Difference, t.ID)
		}
		if changed > maxChanges {
			p.Line("  … and %d more; --json has all", changed-maxChanges)
		}
	}
	return p.Err
}

// over says what the difference is a mean of.
func (c Comparison) over() string {
	text := readable.Count(c.Tasks, "task") + " × " + readable.Count(c.Samples, "sample")
	if c.Greedy {
		text = readable.Count(c.Tasks, "task") + " at temperature 0"
	}
	if c.Cluster != "" {
		text += fmt.Sprintf(" in %d clusters by %s", c.Clusters, c.Cluster)
	}
	return text
}

// String names the side and its mean with its interval.
func (s Side) String() string {
	text := fmt.Sprintf("%s@%d on %s: %.3f [%.3f, %.3f]", s.Run, s.Version, s.Split, s.Mean, s.Low, s.High)
	if s.Model != "" {
		text += " (" + s.Model + ")"
	}
	if s.Pass != nil {
		k := s.Pass.ByK[len(s.Pass.ByK)-1]
		text += fmt.Sprintf(", pass@%d %.3f, pass^%d %.3f", k.K, k.At.Mean, k.K, k.All.Mean)
	}
	return text
}
