package page

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"github.com/fulgurite/fulgurite/page/curves"
	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	// stepsPerPage is how many steps a list has, and evaluationsPerPage how many evaluations.
	stepsPerPage       = 100
	evaluationsPerPage = 100
)

// stepsBody is the list of a run's steps and evaluations.
type stepsBody struct {
	Steps  []stepRow
	Search *listing.Form
	Again  bool // the lags are still being counted
	// UnderWay is the step that has begun and not finished, or 0 if there is none.
	UnderWay         int
	UnderWayPath     string
	Evaluations      []evaluationRow
	EvaluationSearch *listing.Form
}

// evaluationRow is an evaluation and where its attempts are.
type evaluationRow struct {
	record.Evaluation
	Path      string
	Low, High float64
}

func (s *Server) steps(r *http.Request) (view, error) {
	ctx := r.Context()
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	steps, err := s.history(ctx, run)
	if err != nil {
		return view{}, err
	}
	lags, err := s.lagsOf(ctx, run, steps)
	if err != nil {
		return view{}, err
	}
	rows := stepRows(run, steps)
	for i := range rows {
		rows[i].Lag = lagOf(lags.Value, rows[i].Step.Step)
	}
	b := stepsBody{Again: lags.Making}
	b.Steps, b.Search = listing.Narrow(r, rows, stepsPerPage, stepOrder())
	next := 1
	if n := len(steps); n > 0 {
		next = steps[n-1].Step + 1
	}
	under, err := s.Records.TrialsOfStep(ctx, run.Name, trace.Train, next)
	if err != nil {
		return view{}, err
	}
	if len(under) > 0 {
		b.UnderWay, b.UnderWayPath = next, stepPath(run.Name, trace.Train, next)
	}
	fraction, err := s.fractions(ctx, run)
	if err != nil {
		return view{}, err
	}
	j, err := s.judged(ctx, run)
	if err != nil {
		return view{}, err
	}
	var evaluations []evaluationRow
	for _, e := range slices.Backward(j.evaluations) {
		evaluations = append(evaluations, rowOfEvaluation(run, e, fraction))
	}
	b.Evaluations, b.EvaluationSearch = listing.Narrow(r, evaluations, evaluationsPerPage, evaluationOrder())
	v := runView("steps", run, "Steps", link{Text: "Steps"})
	v.Body = b
	return v, nil
}

// stepOrder says how steps can be searched, filtered and sorted.
func stepOrder() listing.Order[stepRow] {
	counts := func(metric string) func(stepRow) bool {
		return func(row stepRow) bool { return row.Metrics[metric] > 0 }
	}
	return listing.Order[stepRow]{
		Text: func(row stepRow) string { return fmt.Sprintf("step %d", row.Step.Step) },
		Filters: []listing.Filter[stepRow]{
			{Text: "all"},
			{Name: "failed", Text: "with agents that failed", Keep: counts("batch/failed")},
			{Name: "cut", Text: "with replies that were cut off", Keep: counts("batch/cut_off")},
			{Name: "flat", Text: "with flat groups", Keep: counts("batch/zero_variance_groups")},
			{Name: "untaught", Text: "that trained nothing", Keep: func(row stepRow) bool { return row.Tokens != nil && *row.Tokens == 0 }},
		},
		Sorts: []listing.Sort[stepRow]{
			{Text: "newest"},
			{Name: "oldest", Text: "oldest", Compare: func(a, b stepRow) int { return cmp.Compare(a.Step.Step, b.Step.Step) }},
			{Name: "reward", Text: "reward, highest first", Compare: func(a, b stepRow) int { return compareKnown(a.Reward, b.Reward, -1) }},
			{Name: "low", Text: "reward, lowest first", Compare: func(a, b stepRow) int { return compareKnown(a.Reward, b.Reward, 1) }},
			{Name: "entropy", Text: "entropy, highest first", Compare: func(a, b stepRow) int { return compareKnown(a.Entropy, b.Entropy, -1) }},
			{Name: "gradient", Text: "gradient, largest first", Compare: func(a, b stepRow) int { return compareKnown(a.Gradient, b.Gradient, -1) }},
			{Name: "lag", Text: "lag, largest first", Compare: func(a, b stepRow) int { return compareKnown(a.Lag, b.Lag, -1) }},
			{Name: "tokens", Text: "trained tokens, most first", Compare: func(a, b stepRow) int { return compareKnown(a.Tokens, b.Tokens, -1) }},
		},
	}
}

// evaluationOrder says how evaluations can be searched, filtered and sorted.
func evaluationOrder() listing.Order[evaluationRow] {
	of := func(kind trace.Kind) func(evaluationRow) bool {
		return func(e evaluationRow) bool { return e.Kind == kind }
	}
	return listing.Order[evaluationRow]{
		Prefix: "evaluation_", Anchor: "#evaluations",
		Text: func(e evaluationRow) string { return fmt.Sprintf("%s version %d", e.Kind, e.Version) },
		Filters: []listing.Filter[evaluationRow]{
			{Text: "all"},
			{Name: string(trace.Gate), Text: "gate", Keep: of(trace.Gate)},
			{Name: string(trace.Test), Text: "test", Keep: of(trace.Test)},
		},
		Sorts: []listing.Sort[evaluationRow]{
			{Text: "newest"},
			{Name: "oldest", Text: "oldest", Compare: func(a, b evaluationRow) int { return cmp.Compare(a.Version, b.Version) }},
			{Name: "high", Text: "mean, highest first", Compare: func(a, b evaluationRow) int { return cmp.Compare(b.Mean, a.Mean) }},
			{Name: "low", Text: "mean, lowest first", Compare: func(a, b evaluationRow) int { return cmp.Compare(a.Mean, b.Mean) }},
		},
	}
}

func rowOfEvaluation(run record.Run, e record.Evaluation, fraction bool) evaluationRow {
	low, high := curves.Interval(e.Mean, e.StdError, fraction)
	return evaluationRow{e, stepPath(run.Name, e.Kind, e.Version), low, high}
}
