package page

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/curves"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// evaluated has the figures of an evaluation. Attempts at temperature 0 are in Greedy
// alone.
type evaluated struct {
	Kind    trace.Kind
	Version int
	Path    string // the page with its tasks
	// Final is true once the evaluation is on record. Before, the figures are those of the
	// attempts that have a reward so far.
	Final     bool
	Mean      float64
	StdError  float64
	Low, High float64 // the 95 % interval of Mean
	Count     int     // rewards of which Mean is the mean
	Greedy    *float64
	Done      int // attempts with a reward, those at temperature 0 too
	Total     int
	Success   float64
	Pass      *evaluation.Passes
	Changed   string // the page that compares it with the first evaluation on the split
}

// evaluates reports whether the attempts of a kind in a run are those of evaluations.
func evaluates(sp spec.Spec, kind trace.Kind) bool {
	return kind == trace.Gate || kind == trace.Test || string(kind) == sp.Evaluation.Only
}

// greedyFrom returns the first sample that an evaluation makes at temperature 0, in
// addition to those at the temperature of the spec. Only evaluations on the test split
// have such a sample.
func greedyFrom(sp spec.Spec, kind trace.Kind) int {
	if kind == trace.Test && evaluates(sp, kind) {
		return sp.Evaluation.Samples
	}
	return math.MaxInt
}

// specOf returns the spec of a run with its defaults, or the zero value if it can't be
// read: a spec that was refused may be anything.
func specOf(run record.Run) spec.Spec {
	sp, err := spec.Stored(run.Spec)
	if err != nil {
		return spec.Spec{}
	}
	return sp
}

// lastAttempts returns the attempts that count: the last one at each rollout.
func lastAttempts(trials []record.Trial) []record.Trial {
	var out []record.Trial
	for i, t := range trials {
		if i+1 == len(trials) || trials[i+1].RolloutID != t.RolloutID {
			out = append(out, t)
		}
	}
	return out
}

// evaluated returns the figures of the evaluation whose attempts are given.
func (s *Server) evaluated(ctx context.Context, run record.Run, kind trace.Kind, version int, trials []record.Trial) (*evaluated, error) {
	sp := specOf(run)
	samples := sp.Evaluation.Samples
	out := evaluated{Kind: kind, Version: version, Path: stepPath(run.Name, kind, version), Success: sp.Evaluation.SuccessThreshold()}
	out.Total = run.Splits[kind].Count * samples
	if kind == trace.Test {
		out.Total += run.Splits[kind].Count
	}
	var rewards, greedy []float64
	for _, t := range lastAttempts(trials) {
		switch {
		case t.Reward == nil:
		case t.Sample >= greedyFrom(sp, kind):
			greedy = append(greedy, *t.Reward)
		default:
			rewards = append(rewards, *t.Reward)
		}
	}
	out.Mean, out.StdError = evaluation.MeanOf(rewards)
	out.Count, out.Done = len(rewards), len(rewards)+len(greedy)
	if len(greedy) > 0 {
		mean, _ := evaluation.MeanOf(greedy)
		out.Greedy = &mean
	}
	recorded, err := s.Records.EvaluationsBetween(ctx, run.Name, model.DefaultPolicy, version, version+1)
	if err != nil {
		return nil, err
	}
	recorded = slices.DeleteFunc(recorded, func(e record.Evaluation) bool { return e.Kind != kind })
	passes, err := report.Evaluations(ctx, s.Records, recorded, sp)
	if err != nil {
		return nil, err
	}
	if len(passes) > 0 {
		e := passes[0]
		out.Final, out.Mean, out.StdError, out.Greedy, out.Pass, out.Count = true, e.Mean, e.StdError, e.Greedy, e.Pass, e.Rollouts
	}
	if out.Changed, err = s.changedSince(ctx, run, kind, version); err != nil {
		return nil, err
	}
	fraction, err := s.fractions(ctx, run)
	out.Low, out.High = curves.Interval(out.Mean, out.StdError, fraction)
	return &out, err
}

// changedSince returns the path of the page that compares an evaluation with the first one
// on its split, or "" if it is the first.
func (s *Server) changedSince(ctx context.Context, run record.Run, kind trace.Kind, version int) (string, error) {
	j, err := s.judged(ctx, run)
	if err != nil {
		return "", err
	}
	first := slices.IndexFunc(j.evaluations, func(e record.Evaluation) bool { return e.Kind == kind })
	if first < 0 || j.evaluations[first].Version >= version {
		return "", nil
	}
	return pairPath(run.Name, j.evaluations[first].Version, version, kind), nil
}

// byDifficulty orders the groups of an evaluation, those with the lowest mean first.
func byDifficulty(a, b groupRow) int {
	return cmp.Or(cmp.Compare(a.Rewards.Mean, b.Rewards.Mean), cmp.Compare(a.Task, b.Task))
}
