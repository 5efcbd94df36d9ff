package compare

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// near is how far computing anew may be from what a batch has, whose numbers are of
// 32 bits.
const near = 1e-6

// WriteText writes the report for people.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Step %d of %s: %d groups, %d attempts, %d calls, %d trained tokens\n", r.Step, r.Run, r.Groups, r.Attempts, r.Calls, r.Tokens)
	if r.Difference > near {
		fmt.Fprintf(&b, "The run's own setting, computed anew, is up to %.3g from what was trained: records came in later, or the release differs.\n", r.Difference)
	}
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, kind := range []struct {
		name string
		of   func(Comparison) Spread
	}{
		{"by call", func(c Comparison) Spread { return c.ByCall }},
		{"by token", func(c Comparison) Spread { return c.ByToken }},
	} {
		fmt.Fprintf(t, "\n%s\tmean\tvariance\tzero\tcorrelation\tother sign\t\n", kind.name)
		for _, c := range r.Settings {
			s := kind.of(c)
			fmt.Fprintf(t, "%s\t%.4f\t%.4f\t%.1f%%\t%s\t%.1f%%\t\n", c.label(), s.Mean, s.Variance, 100*s.Zero, optional(s.Correlation), 100*s.Opposite)
		}
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the comparison: %w", err)
	}
	if len(r.Remarks) > 0 {
		fmt.Fprintf(&b, "\n%s\n", strings.Join(r.Remarks, "\n"))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the comparison: %w", err)
	}
	return nil
}

func optional(v *float64) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf("%.3f", *v)
}
