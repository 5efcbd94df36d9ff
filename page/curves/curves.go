// Package curves makes the figures of a run from the records of its steps: which curves
// there are, what is marked on them, and which range of them is shown.
//
// Its functions are pure. They read nothing and draw nothing; package figure draws.
package curves

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/page/figure"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
)

// z is how many standard errors an interval reaches to each side: 95 % of a normal
// distribution.
const z = 1.96

// Interval returns the 95 % interval of a mean with a standard error. fraction is true if
// all rewards are between 0 and 1; the interval then stays within these limits too.
func Interval(mean, stdError float64, fraction bool) (low, high float64) {
	low, high = mean-z*stdError, mean+z*stdError
	if fraction {
		low, high = max(0, low), min(1, high)
	}
	return low, high
}

// Fractions reports whether all rewards of a run are between 0 and 1, as they are where a
// task is either solved or not: those of the recorded steps, and those that the grader of a
// run without steps can give.
func Fractions(steps []record.Step, s spec.Spec) bool {
	for _, s := range steps {
		low, hasLow := s.Metrics["reward/min"]
		high, hasHigh := s.Metrics["reward/max"]
		if !hasLow || !hasHigh || low < 0 || high > 1 {
			return false
		}
	}
	return len(steps) > 0 || s.RewardsAreFractions()
}

// Data has the records that curves are drawn of.
type Data struct {
	Steps       []record.Step
	Before      time.Time // when the run, or the step before the first of Steps, was done
	Lags        map[int]float64
	Evaluations []record.Evaluation
	Marks       []figure.Mark
	// Policies names those that are trained, if the run has several. What is measured of an
	// update then has a line for each.
	Policies []string
	// Fractions says that no reward of the run is below 0 or above 1.
	Fractions bool
	// Conversations says that steps are made of conversations, not of rollouts.
	Conversations bool
}

// Of returns the figures of a run. Flat then removes those that are zero in every step.
func Of(d Data) (figures []figure.Figure) {
	steps, marks := d.Steps, d.Marks
	lag := figure.Curve{Name: "lag"}
	for _, s := range steps {
		if v, ok := d.Lags[s.Step]; ok {
			lag.Points = append(lag.Points, figure.Point{X: float64(s.Step), Y: v})
		}
	}
	reward, length := "mean of all rollouts of the step", "trained tokens a rollout"
	if d.Conversations {
		reward, length = "mean value of what the step learned from", "trained tokens a conversation"
	}
	of := func(name, key string) []figure.Curve { return ofEach(steps, d.Policies, name, key) }
	figures = []figure.Figure{
		{Title: "Reward", Lines: []figure.Curve{rewards(steps)}, Marks: marks, Note: reward},
		{Title: "Evaluations", Unit: "version", Lines: evaluationCurves(d.Evaluations, d.Fractions), Marks: decided(marks), Note: "bars: 95 % intervals"},
		{Title: "Entropy", Lines: of("entropy", "train/entropy"), Marks: marks, Note: "nats a token"},
		klFigure(d),
		{Title: "Gradient norm", Lines: of("gradient norm", "train/gradient_norm"), Marks: marks, Note: "before clipping"},
		{Title: "Mismatch", Lines: mismatches(d), Note: "nats between sampler and trainer"},
		{Title: "Lag", Lines: []figure.Curve{lag}, Note: "steps the sampler was behind"},
		{Title: "Length", Lines: lengths(d), Note: length},
		{Title: "Cut off", Lines: []figure.Curve{ratio(steps, "replies cut off", "batch/cut_off", "batch/calls")}, Note: "share of replies that a limit of tokens ended"},
		{Title: "Speed", Lines: []figure.Curve{speed(steps, d.Before)}, Note: "tokens of the batch a second, from step to step"},
	}
	for i, f := range figures {
		if f.Unit == "" {
			figures[i].Unit = "step"
		}
		figures[i].Lines, figures[i].Zoom = withPoints(f.Lines), true
	}
	return figures
}

// Flat removes the figures whose values are all zero, and returns their titles.
func Flat(figures []figure.Figure) (rest []figure.Figure, titles []string) {
	for _, f := range figures {
		zero := !f.Empty() && f.Title != "Reward" && f.Title != "Evaluations"
		for _, l := range f.Lines {
			zero = zero && !slices.ContainsFunc(l.Points, func(p figure.Point) bool { return p.Y != 0 })
		}
		if zero {
			titles = append(titles, f.Title)
		} else {
			rest = append(rest, f)
		}
	}
	return rest, titles
}

// speed returns the trained tokens per second. The time is that from the end of one step
// to the end of the next, so it includes all waiting.
func speed(steps []record.Step, before time.Time) figure.Curve {
	c := figure.Curve{Name: "tokens a second"}
	for _, s := range steps {
		tokens, has := s.Metrics["batch/tokens"]
		if took := s.At.Sub(before).Seconds(); has && !before.IsZero() && took > 0 {
			c.Points = append(c.Points, figure.Point{X: float64(s.Step), Y: tokens / took})
		}
		before = s.At
	}
	return c
}

// decided returns the marks about decisions on versions.
func decided(marks []figure.Mark) []figure.Mark {
	return slices.DeleteFunc(slices.Clone(marks), func(m figure.Mark) bool { return m.Kind == figure.Interrupted || m.Kind == figure.Set })
}

// withPoints leaves out lines of which nothing is on record, but for the first.
func withPoints(lines []figure.Curve) []figure.Curve {
	out := lines[:0:0]
	for i, l := range lines {
		if i == 0 || len(l.Points) > 0 {
			out = append(out, l)
		}
	}
	return out
}

// klFigure prefers the divergence from version 0, which only runs with that penalty have.
func klFigure(d Data) figure.Figure {
	update := ofEach(d.Steps, d.Policies, "KL of the update", "train/kl")
	for _, key := range []string{"train/kl_ref", "batch/kl_ref"} {
		if reference := ofEach(d.Steps, d.Policies, "KL to version 0", key); slices.ContainsFunc(reference, func(c figure.Curve) bool { return len(c.Points) > 0 }) {
			if len(d.Policies) == 0 {
				reference = append(reference, update...)
			}
			return figure.Figure{Title: "KL", Lines: reference, Marks: d.Marks, Note: "nats a token"}
		}
	}
	return figure.Figure{Title: "KL", Lines: update, Marks: d.Marks, Note: "nats a token, sampler to trainer"}
}

// mismatches returns the mean mismatch between sampler and trainer and that of the worst token,
// or the mean of each policy.
func mismatches(d Data) []figure.Curve {
	lines := ofEach(d.Steps, d.Policies, "mean", "train/mismatch")
	if len(d.Policies) == 0 {
		lines = append(lines, metric(d.Steps, "worst token", "train/mismatch_max"))
	}
	return lines
}

// lengths returns the trained tokens of a rollout: all, and those of each policy.
func lengths(d Data) []figure.Curve {
	lines := []figure.Curve{ratio(d.Steps, "trained tokens", "batch/trained_tokens", "batch/rollouts")}
	for _, policy := range d.Policies {
		lines = append(lines, ratio(d.Steps, "of "+policy, policyMetric(policy, "batch/trained_tokens"), "batch/rollouts"))
	}
	return lines
}

// ofEach returns a metric of the update, or of the update of each of several policies.
func ofEach(steps []record.Step, policies []string, name, key string) []figure.Curve {
	if len(policies) == 0 {
		return []figure.Curve{metric(steps, name, key)}
	}
	var lines []figure.Curve
	for _, policy := range policies {
		lines = append(lines, metric(steps, name+" of "+policy, policyMetric(policy, key)))
	}
	return lines
}

// policyMetric returns the name that a step's record has for a metric of one policy.
func policyMetric(policy, key string) string { return "policy/" + policy + "/" + key }

func metric(steps []record.Step, name, key string) figure.Curve {
	c := figure.Curve{Name: name}
	for _, s := range steps {
		if v, ok := s.Metrics[key]; ok {
			c.Points = append(c.Points, figure.Point{X: float64(s.Step), Y: v})
		}
	}
	return c
}

func rewards(steps []record.Step) figure.Curve {
	c := figure.Curve{Name: "reward"}
	for _, s := range steps {
		if v, ok := s.Reward(); ok {
			c.Points = append(c.Points, figure.Point{X: float64(s.Step), Y: v})
		}
	}
	return c
}

func ratio(steps []record.Step, name, over, under string) figure.Curve {
	c := figure.Curve{Name: name}
	for _, s := range steps {
		a, has := s.Metrics[over]
		if b := s.Metrics[under]; has && b > 0 {
			c.Points = append(c.Points, figure.Point{X: float64(s.Step), Y: a / b})
		}
	}
	return c
}

// evaluationCurves returns the means of the splits with their intervals. If policies are promoted
// alone, each has lines of its own, which begin with version 0 of all.
func evaluationCurves(all []record.Evaluation, fractions bool) []figure.Curve {
	var lines []figure.Curve
	for _, kind := range []record.Kind{record.Gate, record.Test} {
		policies := map[string]bool{}
		for _, e := range all {
			if e.Kind == kind && !evaluation.IsOwn(e.Policy) {
				policies[e.Policy] = true
			}
		}
		if len(policies) == 0 {
			lines = append(lines, evaluationCurve(all, kind, "", fractions))
		}
		for _, policy := range slices.Sorted(maps.Keys(policies)) {
			lines = append(lines, evaluationCurve(all, kind, policy, fractions))
		}
	}
	return lines
}

// evaluationCurve returns the means on one split of the versions of a run, and with those of one
// of several policies if there is one.
func evaluationCurve(all []record.Evaluation, kind record.Kind, policy string, fractions bool) figure.Curve {
	c := figure.Curve{Name: string(kind), Dots: kind == record.Test}
	if policy != "" {
		c.Name += " of " + policy
	}
	for _, e := range all {
		if e.Kind != kind || e.Policy != policy && !evaluation.IsOwn(e.Policy) {
			continue
		}
		low, high := Interval(e.Mean, e.StdError, fractions)
		c.Points = append(c.Points, figure.Point{X: float64(e.Version), Y: e.Mean, Low: low, High: high})
	}
	return c
}

// MaxMarks is how many marks are drawn, the newest ones.
const MaxMarks = 200

// Decided returns marks for the moves of the promoted pointer and for the decisions that
// moved nothing.
func Decided(moves []record.Promotion, decisions []record.Decision) []figure.Mark {
	var out []figure.Mark
	for _, p := range moves {
		if p.Version == p.Previous {
			continue // a pin or its end
		}
		out = append(out, figure.Mark{X: float64(p.Version), Kind: figure.Promoted, Text: format.FirstLine(fmt.Sprintf("%s: version %d%s promoted", strings.TrimSpace(string(p.Source)), p.Version, ofPolicy(p.Policy)))})
	}
	for _, d := range decisions {
		out = append(out, figure.Mark{X: float64(d.Candidate), Kind: figure.Refused, Text: format.FirstLine(fmt.Sprintf("version %d%s %s: %s", d.Candidate, ofPolicy(d.Policy), d.Verdict, d.Reason))})
	}
	return out
}

// ofPolicy returns the words that follow the number of a version of one of several policies. It
// is empty for the versions of a run.
func ofPolicy(policy string) string {
	if evaluation.IsOwn(policy) {
		return ""
	}
	return " of " + policy
}

// Settings returns marks for the steps from which on keys of the spec had values that a
// person set.
func Settings(actions []record.Action) []figure.Mark {
	var out []figure.Mark
	for _, a := range actions {
		if len(a.Input.Values) == 0 || a.Outcome != record.ActionDone { // set, or a retry that sets
			continue
		}
		var values []string
		for _, key := range slices.Sorted(maps.Keys(a.Input.Values)) {
			values = append(values, fmt.Sprintf("%s=%g", key, a.Input.Values[key]))
		}
		text := fmt.Sprintf("from step %d on %s, set by %s", a.Result.Step, strings.Join(values, ", "), a.By)
		out = append(out, figure.Mark{X: float64(a.Result.Step), Kind: figure.Set, Text: format.FirstLine(text)})
	}
	return out
}

// Interruptions returns marks for the steps in which a fault ended attempts that were made
// again. The report counts those of finished steps. Those of later steps are in latest, so
// that a mark does not wait for the end of its step.
func Interruptions(r *report.Report, latest []record.Interruption) []figure.Mark {
	var out []figure.Mark
	counted := 0
	if r != nil {
		for _, step := range r.ByStep {
			counted = max(counted, step.Step)
			if step.Interrupted > 0 {
				out = append(out, interrupted(step.Step, step.Interrupted, fmt.Sprintf(", %s lost", format.Took(time.Duration(step.InterruptedSeconds*float64(time.Second))))))
			}
		}
	}
	later := map[int]int{}
	for _, i := range latest {
		if (i.Kind == record.Train || i.Kind == record.Reserve) && i.Step > counted {
			later[i.Step]++
		}
	}
	for _, step := range slices.Sorted(maps.Keys(later)) {
		out = append(out, interrupted(step, later[step], ""))
	}
	return out
}

func interrupted(step, attempts int, lost string) figure.Mark {
	return figure.Mark{X: float64(step), Kind: figure.Interrupted, Text: fmt.Sprintf("%s interrupted and made again%s", readable.Count(attempts, "attempt"), lost)}
}

// Span is the range of steps that curves show.
type Span struct {
	From, To int
	Last     int // last step of the run
	All      bool
}

// SpanOf returns the range that a reader asks for. last is the run's last step. A bound
// of 0 means that the reader asks for none.
func SpanOf(from, to, last int) Span {
	out := Span{From: 0, To: last, Last: last, All: true}
	if to > 0 && to < last {
		out.To, out.All = to, false
	}
	if from > 0 && from <= out.To {
		out.From, out.All = from, false
	}
	return out
}

func (s Span) holds(step int) bool { return s.All || step >= s.From && step <= s.To }

// Steps returns the steps of the range.
func (s Span) Steps(all []record.Step) []record.Step {
	first, _ := slices.BinarySearchFunc(all, s.From, func(one record.Step, step int) int { return one.Step - step })
	end, _ := slices.BinarySearchFunc(all, s.To+1, func(one record.Step, step int) int { return one.Step - step })
	return all[first:end]
}

// Evaluations returns the evaluations of versions in the range.
func (s Span) Evaluations(all []record.Evaluation) []record.Evaluation {
	var out []record.Evaluation
	for _, e := range all {
		if s.holds(e.Version) {
			out = append(out, e)
		}
	}
	return out
}

// Marks returns the newest marks of the range, in order.
func (s Span) Marks(all []figure.Mark) []figure.Mark {
	var out []figure.Mark
	for _, m := range all {
		if s.holds(int(m.X)) {
			out = append(out, m)
		}
	}
	slices.SortStableFunc(out, func(a, b figure.Mark) int { return cmp.Compare(a.X, b.X) })
	return out[max(0, len(out)-MaxMarks):]
}
