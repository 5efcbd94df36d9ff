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
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/trace"
)

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
		out = append(out, figure.Mark{X: float64(p.Version), Kind: figure.Promoted, Text: format.FirstLine(fmt.Sprintf("%s: version %d promoted", strings.TrimSpace(string(p.Source)), p.Version))})
	}
	for _, d := range decisions {
		out = append(out, figure.Mark{X: float64(d.Candidate), Kind: figure.Refused, Text: format.FirstLine(fmt.Sprintf("version %d %s: %s", d.Candidate, d.Verdict, d.Reason))})
	}
	return out
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
		if (i.Kind == trace.Train || i.Kind == trace.Reserve) && i.Step > counted {
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
