package page

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/curves"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

// stepsPerPage is how many steps a list has.
const stepsPerPage = 100

// stepsBody is the list of a run's steps and evaluations.
type stepsBody struct {
	Steps        []stepRow
	Newer, Older string
	Again        bool // the lags are still being counted
	// UnderWay is the step that has begun and not finished, or 0 if there is none.
	UnderWay     int
	UnderWayPath string
	Evaluations  []evaluationRow
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
	last := 0
	if n := len(steps); n > 0 {
		last = steps[n-1].Step
	}
	to := last
	if n, err := strconv.Atoi(r.URL.Query().Get("to")); err == nil && n > 0 && n < last {
		to = n
	}
	var b stepsBody
	first := slices.IndexFunc(steps, func(one record.Step) bool { return one.Step > to-stepsPerPage })
	end := slices.IndexFunc(steps, func(one record.Step) bool { return one.Step > to })
	if end < 0 {
		end = len(steps)
	}
	if first >= 0 {
		b.Steps = stepRows(run, steps[first:end])
	}
	lags, err := s.lagsOf(ctx, run, steps)
	if err != nil {
		return view{}, err
	}
	b.Again = lags.Making
	for i := range b.Steps {
		b.Steps[i].Lag = lagOf(lags.Value, b.Steps[i].Step.Step)
	}
	if to < last {
		b.Newer = fmt.Sprintf("?to=%d", to+stepsPerPage)
	}
	if to-stepsPerPage > 0 {
		b.Older = fmt.Sprintf("?to=%d", to-stepsPerPage)
	}
	under, err := s.Records.TrialsOfStep(ctx, run.Name, trace.Train, last+1)
	if err != nil {
		return view{}, err
	}
	if len(under) > 0 && to == last {
		b.UnderWay, b.UnderWayPath = last+1, stepPath(run.Name, trace.Train, last+1)
	}
	newest := mostVersions
	if to < last {
		newest = to + 1
	}
	fraction, err := s.fractions(ctx, run)
	if err != nil {
		return view{}, err
	}
	if b.Evaluations, err = s.evaluations(r, run, fraction, max(0, to+1-stepsPerPage), newest); err != nil {
		return view{}, err
	}
	v := runView("steps", run, "Steps", link{Text: "Steps"})
	v.Body = b
	return v, nil
}

// evaluations returns the evaluations of versions with numbers from from up to, but not
// including, to. The newest comes first.
func (s *Server) evaluations(r *http.Request, run record.Run, fraction bool, from, to int) ([]evaluationRow, error) {
	all, err := s.Records.EvaluationsBetween(r.Context(), run.Name, model.DefaultPolicy, from, to)
	if err != nil {
		return nil, err
	}
	var out []evaluationRow
	for _, e := range slices.Backward(all) {
		out = append(out, rowOfEvaluation(run, e, fraction))
	}
	return out, nil
}

func rowOfEvaluation(run record.Run, e record.Evaluation, fraction bool) evaluationRow {
	low, high := curves.Interval(e.Mean, e.StdError, fraction)
	return evaluationRow{e, stepPath(run.Name, e.Kind, e.Version), low, high}
}
