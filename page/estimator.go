package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/compare"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/figure"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	// maxEstimators is how many estimators are computed at once, and maxEstimated how
	// many calls are shown.
	maxEstimators = 4
	maxEstimated  = 200
)

// estimatorBody is the credit of an attempt under other settings than its run's.
type estimatorBody struct {
	Attempt  string
	Choices  []choice
	Problem  string
	Making   bool // the step is still being read
	Step     int
	Settings []string
	Reward   float64
	Calls    []estimatedCall
	More     int
	Remarks  []string
	Figure   figure.Figure
}

// choice is a way to assign credit that a reader may tick.
type choice struct {
	Name   string
	Chosen bool
}

// estimatedCall is a call with its advantage under each setting.
type estimatedCall struct {
	compare.Call
	Path  string
	Fired []string // signals
}

// estimators computes the credit of an attempt under other settings, as `fulgurite credit
// --calls` does. Nothing is changed by it.
func (s *Server) estimators(r *http.Request) (view, error) {
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	at, err := placeOf(run.Name, r.PathValue("step"), r.PathValue("task"), r.PathValue("sample"), r.PathValue("attempt"))
	if err != nil {
		return view{}, err
	}
	if _, err := s.Records.Attempt(r.Context(), at); err != nil {
		return view{}, err
	}
	chosen := r.URL.Query()["with"]
	b := estimatorBody{Attempt: attemptPath(at), Step: at.Step, Choices: choices(chosen)}
	if len(chosen) > maxEstimators {
		chosen, b.Problem = chosen[:maxEstimators], fmt.Sprintf("The first %d are shown.", maxEstimators)
	}
	if at.Kind == trace.Train || at.Kind == trace.Reserve {
		err = s.estimate(r.Context(), &b, at, chosen)
	} else {
		b.Problem = "Only what a step was trained on has credit."
	}
	if err != nil {
		return view{}, err
	}
	v := runView("estimator", run, "Steps", link{Text: stepName(at.Kind, at.Step), Path: stepPath(run.Name, at.Kind, at.Step)},
		link{Text: fmt.Sprintf("Sample %d, attempt %d", at.Sample, at.Attempt), Path: b.Attempt}, link{Text: "Credit"})
	v.Follow, v.Body = "", b
	return v, nil
}

func choices(chosen []string) []choice {
	var names []string
	for _, a := range credit.Assignments() {
		names = append(names, string(a))
	}
	for _, name := range spec.Algorithms() {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	out := make([]choice, len(names))
	for i, name := range names {
		out[i] = choice{name, slices.Contains(chosen, name)}
	}
	return out
}

// estimate adds the calls. If the step lacks what a setting needs, the page says so.
func (s *Server) estimate(ctx context.Context, b *estimatorBody, at trace.Address, chosen []string) error {
	key := fmt.Sprintf("%s %d", at.Run, at.Step)
	opened := s.opened.Of(ctx, key, key, false, s.Patience, func() (*compare.Step, error) {
		return compare.Open(s.ctx, oneBatch{s.Records, at}, s.Blobs, at.Run, model.DefaultPolicy, at.Step)
	})
	b.Making = opened.Making
	if opened.Err != nil {
		b.Problem = format.Shown(opened.Err.Error())
		return nil
	}
	if !opened.Known {
		return nil
	}
	settings, err := compare.Settings(opened.Value.Spec, chosen)
	var calls compare.Calls
	if err == nil {
		calls, err = opened.Value.Calls(at, settings)
	}
	if err != nil {
		b.Problem = format.Shown(err.Error())
		return nil
	}
	b.Settings, b.Reward = calls.Settings, calls.Reward
	b.Figure = figure.Figure{Title: "Advantage", Unit: "call", Note: "of the trained tokens of each call"}
	for i, name := range calls.Settings {
		line := figure.Curve{Name: format.FirstLine(name)}
		for _, c := range calls.List {
			if c.Trained {
				line.Points = append(line.Points, figure.Point{X: float64(c.Number), Y: c.Advantages[i]})
			}
		}
		b.Figure.Lines = append(b.Figure.Lines, line)
	}
	for _, c := range calls.List[:min(len(calls.List), maxEstimated)] {
		one := estimatedCall{Call: c, Path: fmt.Sprintf("%s?call=%d", b.Attempt, c.Number)}
		for _, fired := range c.Signals {
			one.Fired = append(one.Fired, format.FirstLine(fired.Text()))
		}
		one.Call.Agent = format.FirstLine(c.Agent)
		b.Calls = append(b.Calls, one)
	}
	b.More = len(calls.List) - len(b.Calls)
	return nil
}

// oneBatch are records in which a run has the batch of one step, so that no others are
// looked up.
type oneBatch struct {
	Records
	at trace.Address
}

func (o oneBatch) Batches(ctx context.Context, run, policy string) ([]record.Batch, error) {
	b, err := o.Batch(ctx, run, policy, o.at.Step)
	if errors.Is(err, trace.ErrNotFound) {
		return nil, nil
	}
	return []record.Batch{b}, err
}
