// Package compare compares ways of assigning credit to one recorded step of a run: the
// setting under which the step was trained, and other assignments or algorithms.
//
// It needs no engine and writes nothing. It does not say which way learns better; only
// training shows that. It says how far the advantages differ: how many of them are zero,
// how they vary, whether they agree, and which calls of an attempt get any.
//
// The numbers are computed by the same code as those that runs are trained on (package
// assign). The report says how far the run's own setting, computed again, is from the
// advantages in the batch.
package compare

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/assign"
	"github.com/fulgurite/fulgurite/internal/chart"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/spec"
)

// Report compares settings over one step. The keys of its JSON are a public
// contract.
type Report struct {
	Run      string `json:"run"`
	Policy   string `json:"policy"`
	Step     int    `json:"step"`
	Groups   int    `json:"groups"`
	Attempts int    `json:"attempts"`
	Calls    int    `json:"calls"`  // the calls that are trained under the run's own setting
	Tokens   int    `json:"tokens"` // of these calls
	// Difference is the largest difference between the advantages of the run's own
	// setting, computed again, and those in the batch that the step was trained on.
	Difference float64 `json:"largest_difference"`
	// Settings are the run's own and then those asked for.
	Settings []Comparison `json:"settings"`
	Remarks  []string     `json:"remarks"`
}

// Comparison describes the advantages of a setting in comparison with the run's own.
type Comparison struct {
	Name       string            `json:"name"`
	Assignment credit.Assignment `json:"assignment"`
	ByCall     Spread            `json:"by_call"`
	ByToken    Spread            `json:"by_token"`
	// Positions are the mean magnitudes of the advantage of the first, second, …
	// call of an attempt.
	Positions []float64 `json:"mean_magnitude_by_position"`
}

// Spread describes the distribution of advantages.
type Spread struct {
	Mean     float64 `json:"mean"`
	Variance float64 `json:"variance"`
	Zero     float64 `json:"zero_fraction"`
	// Correlation is the correlation with the run's own advantages. It is null if one of
	// the two does not vary.
	Correlation *float64 `json:"correlation"`
	// Opposite is the share of advantages whose sign is opposite under the run's own
	// setting.
	Opposite float64 `json:"sign_changes"`
}

// Compare assigns credit to the step under each setting. The first setting is the run's
// own.
func (s *Step) Compare(settings []Setting) (Report, error) {
	r := Report{Run: s.Run, Policy: s.Policy, Step: s.Number, Remarks: []string{}}
	for _, samples := range s.groups {
		if len(samples) > 0 {
			r.Groups++
		}
		r.Attempts += len(samples)
	}
	if n := len(s.groups) - r.Groups; n > 0 {
		r.Remarks = append(r.Remarks, fmt.Sprintf("%d of the step's %s %s left out of its batch and earned no credit: `%s` says why", n, readable.Count(len(s.groups), "group"), readable.WasOrWere(n), shell.Command("report", s.Run)))
	}
	var own outcome
	for i, one := range settings {
		o, err := s.assign(one)
		if err != nil {
			return r, err
		}
		if i == 0 {
			own = o
			if r.Difference, err = s.difference(own); err != nil {
				return r, err
			}
		}
		r.Settings = append(r.Settings, compare(own, o))
		if s.lacksValues(one.Spec) {
			r.Remarks = append(r.Remarks, one.Name+": the step has no values of a critic, so estimates learned from the run's calls are used instead")
		}
	}
	own.each(func(g, i, k int) {
		r.Calls++
		r.Tokens += own.trajectories[g][i].Calls[k].Tokens
	})
	return r, nil
}

// each calls visit with group, sample and number of every call that is trained.
func (o outcome) each(visit func(group, sample, call int)) {
	for g, samples := range o.trajectories {
		for i, t := range samples {
			for k, c := range t.Calls {
				if c.Trains() {
					visit(g, i, k)
				}
			}
		}
	}
}

func compare(own, other outcome) Comparison {
	c := Comparison{Name: other.Name, Assignment: other.Spec.Credit.Assignment, Positions: []float64{}}
	c.ByCall = spread(func(pair func(own, other float64)) {
		own.each(func(g, i, k int) { pair(own.given.Call[g][i][k], other.given.Call[g][i][k]) })
	})
	c.ByToken = spread(func(pair func(own, other float64)) {
		own.each(func(g, i, k int) {
			for t := range own.trajectories[g][i].Calls[k].Tokens {
				pair(own.token(g, i, k, t), other.token(g, i, k, t))
			}
		})
	})
	var counts []float64
	own.each(func(g, i, k int) {
		for len(counts) <= k {
			counts, c.Positions = append(counts, 0), append(c.Positions, 0)
		}
		counts[k]++
		c.Positions[k] += math.Abs(other.given.Call[g][i][k])
	})
	for k, n := range counts {
		c.Positions[k] /= math.Max(1, n) // some numbers may have no call of a trained agent
	}
	return c
}

// spread describes the second number of each pair in comparison with the first. It goes
// through all pairs twice, because deviations can be computed only after the mean.
func spread(pairs func(pair func(own, other float64))) Spread {
	var n, zero, opposite, own, other float64
	pairs(func(a, b float64) {
		n++
		own += a
		other += b
		if b == 0 {
			zero++
		}
		if a*b < 0 {
			opposite++
		}
	})
	if n == 0 {
		return Spread{}
	}
	own, other = own/n, other/n
	var ownSquares, squares, products float64
	pairs(func(a, b float64) {
		ownSquares += (a - own) * (a - own)
		squares += (b - other) * (b - other)
		products += (a - own) * (b - other)
	})
	s := Spread{Mean: other, Variance: squares / n, Zero: zero / n, Opposite: opposite / n}
	if scale := math.Sqrt(ownSquares) * math.Sqrt(squares); scale > 0 {
		r := products / scale
		s.Correlation = &r
	}
	return s
}

// Plot returns a chart that shows which calls of an attempt get credit under each
// setting.
func (r Report) Plot() chart.Plot {
	p := chart.Plot{Title: "Credit of " + r.Run, XLabel: "call of the attempt", YLabel: "mean magnitude of the advantage"}
	for _, s := range r.Settings {
		one := chart.Series{Name: s.label()}
		for k, v := range s.Positions {
			one.Points = append(one.Points, chart.Point{X: float64(k), Y: v})
		}
		p.Series = append(p.Series, one)
	}
	return p
}

// label returns the name of a setting for the chart and the text.
func (c Comparison) label() string {
	if c.Name == Own {
		return string(c.Assignment) + " (own)"
	}
	return c.Name
}

// near is the largest difference from a batch that rounding explains. The numbers of a
// batch have 32 bits.
const near = 1e-6

// WriteText writes the report as readable text.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Step %d of %s: %s, %s, %s, %s\n", r.Step, r.Run,
		readable.Count(r.Groups, "group"), readable.Count(r.Attempts, "attempt"), readable.Count(r.Calls, "call"), readable.Count(r.Tokens, "trained token"))
	if r.Difference > near {
		fmt.Fprintf(&b, "The run's own setting, computed again, is up to %.3g from what was trained: records came in later, or the release differs.\n", r.Difference)
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

// ErrUnknown is wrapped when a name is neither an assignment nor an algorithm.
var ErrUnknown = errors.New("unknown way to assign credit")

// Own is the name of the run's own setting.
const Own = "own"

// Setting is one way to assign credit.
type Setting struct {
	Name string
	Spec spec.Spec
}

// assignments returns the names of assignments in specs. The judge's assignment uses the
// scores on record.
func assignments() []string {
	var all []string
	for _, a := range credit.Assignments() {
		all = append(all, string(a))
	}
	return all
}

// Settings returns the run's own setting and then one for each name. If the name is an
// assignment, it replaces the run's assignment; otherwise it is an algorithm, whose
// credit replaces the run's. The rewards of attempts and calls stay those of the run.
func Settings(own spec.Spec, names []string) ([]Setting, error) {
	all := []Setting{{Own, own}}
	for _, name := range names {
		s := own
		switch {
		case slices.Contains(assignments(), name):
			s.Algorithm, s.Credit = "", assigned(own.Credit, credit.Assignment(name))
		case slices.Contains(spec.Algorithms(), name):
			s.Algorithm, s.Credit = name, earning(own.Credit)
		default:
			return nil, fmt.Errorf("%w %q: give an assignment (%s) or an algorithm (%s)",
				ErrUnknown, name, strings.Join(assignments(), ", "), strings.Join(spec.Algorithms(), ", "))
		}
		s.Critic = nil
		all = append(all, Setting{name, s.WithDefaults()})
	}
	return all, nil
}

// assigned returns c with another assignment. The comparison of rewards stays the same,
// unless the old or the new assignment compares rewards with estimates.
func assigned(c spec.Credit, assignment credit.Assignment) spec.Credit {
	out := earning(c)
	out.Assignment = assignment
	if !estimates(c) && !estimates(out) {
		out.Mean, out.Std, out.LeaveOneOut, out.Whiten, out.Combine = c.Mean, c.Std, c.LeaveOneOut, c.Whiten, c.Combine
	}
	out.Discount, out.Lambda, out.StepWeight = c.Discount, c.Lambda, c.StepWeight
	return out
}

// earning returns the part of c that determines what attempts and calls earn, and which
// calls are trained.
func earning(c spec.Credit) spec.Credit {
	return spec.Credit{
		Rewards: c.Rewards, Signals: c.Signals, Overlong: c.Overlong, FormatPenalty: c.FormatPenalty, Truncated: c.Truncated, KLInReward: c.KLInReward,
		TrainAgents: c.TrainAgents, PerAgent: c.PerAgent,
	}
}

// estimates reports whether rewards are compared with estimates.
func estimates(c spec.Credit) bool {
	return c.UsesCritic() || c.Assignment == credit.ValueDifference
}

// NeverTeaches reports whether the run's own setting gives no trained token of the step
// an advantage, whatever rewards its attempts get.
func (s *Step) NeverTeaches() (bool, error) {
	if estimates(s.Spec.Credit) && s.learned != nil && len(s.valued) == 0 {
		return false, s.learned
	}
	return assign.NeverTeaches(s.Spec, s.groups)
}

// Agents returns, for each group, in how many of its attempts each agent made a trained
// call.
func (s *Step) Agents() ([]map[string]int, error) {
	own, err := s.assign(Setting{Own, s.Spec})
	if err != nil {
		return nil, err
	}
	out := make([]map[string]int, len(own.trajectories))
	for g, trajectories := range own.trajectories {
		out[g] = map[string]int{}
		for _, t := range trajectories {
			seen := map[string]bool{}
			for _, c := range t.Calls {
				if c.Trains() && !seen[c.Agent] {
					seen[c.Agent] = true
					out[g][c.Agent]++
				}
			}
		}
	}
	return out, nil
}
