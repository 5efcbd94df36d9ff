package page

import (
	"context"
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/trace"
)

// betterRun says which of two runs is better and how certain that is: the paired comparison
// of the versions that were evaluated last on a split of both.
type betterRun struct {
	A, B   string // versions, as RUN@NUMBER
	Split  trace.Kind
	Text   string // the answer, or why there is none
	Result *evaluation.Comparison
	Path   string // the comparison task by task; empty if there is none
}

// better compares each run with the first one.
func (s *Server) better(ctx context.Context, runs []record.Run) ([]betterRun, error) {
	var out []betterRun
	for _, run := range runs[min(1, len(runs)):] {
		one, err := s.betterOf(ctx, runs[0], run)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

func (s *Server) betterOf(ctx context.Context, a, b record.Run) (betterRun, error) {
	out := betterRun{A: a.Name, B: b.Name}
	for _, split := range []trace.Kind{trace.Test, trace.Gate, trace.Train} {
		lastA, err := s.lastEvaluated(ctx, a, split)
		if err != nil {
			return out, err
		}
		lastB, err := s.lastEvaluated(ctx, b, split)
		if err != nil {
			return out, err
		}
		if lastA == nil || lastB == nil {
			continue
		}
		out.A, out.B, out.Split = fmt.Sprintf("%s@%d", a.Name, lastA.Version), fmt.Sprintf("%s@%d", b.Name, lastB.Version), split
		body := pairBody{A: out.A, B: out.B, Split: split}
		sets, err := s.sets(ctx, &body)
		if err == nil {
			var c evaluation.Comparison
			if c, err = evaluation.Compare(sets[0], sets[1], ""); err == nil {
				out.Result, out.Text = &c, sentence(c, out.A, out.B)
				out.Path = betweenPath(a.Name, out.A, out.B, split)
				return out, nil
			}
		}
		if !expected(err) {
			return out, err
		}
		out.Text = format.Shown(err.Error())
	}
	if out.Text == "" {
		out.Text = "No split was evaluated in both runs, so nothing says which is better."
	}
	return out, nil
}

// lastEvaluated returns the evaluation of a run's newest version that was evaluated on a
// split, or nil if there is none.
func (s *Server) lastEvaluated(ctx context.Context, run record.Run, split trace.Kind) (*record.Evaluation, error) {
	j, err := s.judged(ctx, run)
	if err != nil {
		return nil, err
	}
	for _, e := range slices.Backward(j.evaluations) {
		if e.Kind == split && e.Policy == model.DefaultPolicy {
			return &e, nil
		}
	}
	return nil, nil
}

// otherTasks returns the splits whose tasks differ between runs, so that their curves on
// these splits are not about the same thing.
func otherTasks(runs []record.Run) []trace.Kind {
	var out []trace.Kind
	for _, split := range []trace.Kind{trace.Train, trace.Gate, trace.Test} {
		digests := map[string]bool{}
		for _, run := range runs {
			if digest := run.Splits[split].Digest; digest != "" {
				digests[digest] = true
			}
		}
		if len(digests) > 1 {
			out = append(out, split)
		}
	}
	return out
}
