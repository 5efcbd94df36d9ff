package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/curves"
	"github.com/fulgurite/fulgurite/page/figure"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/page/specs"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
)

const (
	// maxCompared is how many runs can be compared.
	maxCompared = figure.MaxLines
	// maxKeys is how many keys of specs are compared, and keysPerPage how many a page shows.
	maxKeys     = 5000
	keysPerPage = 100
)

// compareBody lays runs over each other.
type compareBody struct {
	Problem string
	Runs    []comparedRun
	Better  []betterRun   // of each run after the first one, and the first one
	Other   []record.Kind // splits whose tasks differ
	Figures []figure.Figure
	Range   curves.Span
	Keys    []specs.Key
	Search  *listing.Form // of Keys
	More    int           // keys that are not compared
	Equal   int           // keys that all specs have alike
}

// comparedRun is a run among them. Its place is its colour.
type comparedRun struct {
	runRow
	Place int
	Query string // the same page without the run
}

func (s *Server) compareRuns(r *http.Request) (view, error) {
	ctx := r.Context()
	var b compareBody
	names := slices.Compact(slices.Clone(r.URL.Query()["run"]))
	if len(names) < 2 {
		b.Problem = "Tick two runs or more in the list of runs."
	}
	if len(names) > maxCompared {
		b.Problem = fmt.Sprintf("The first %d of %d runs are shown.", maxCompared, len(names))
		names = names[:maxCompared]
	}
	var runs []record.Run
	for _, name := range names {
		run, err := s.Records.Run(ctx, name)
		if errors.Is(err, record.ErrNotFound) {
			b.Problem = fmt.Sprintf("There is no run %s.", format.FirstLine(name))
			continue
		}
		if err != nil {
			return view{}, err
		}
		runs = append(runs, run)
	}
	if s.Live != nil {
		runs, _ = s.liveRuns(ctx, runs) // if Temporal does not answer, the records are used
	}
	last := 0
	for i, run := range runs {
		row, err := s.runRow(ctx, run)
		if err != nil {
			return view{}, err
		}
		q := r.URL.Query()
		q["run"] = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == run.Name })
		b.Runs, last = append(b.Runs, comparedRun{row, i, "?" + q.Encode()}), max(last, row.Step)
	}
	b.Range = curves.SpanOf(number(r, "from"), number(r, "to"), last)
	if len(runs) > 0 {
		err := s.overlay(ctx, &b, runs)
		if err != nil {
			return view{}, err
		}
		if b.Better, err = s.better(ctx, runs); err != nil {
			return view{}, err
		}
		b.Other = otherTasks(runs)
		b.Keys, b.More, b.Equal = specs.Differences(runs, maxKeys)
		b.Keys, b.Search = narrowKeys(r, b.Keys)
	}
	return view{template: "compare", Title: "Comparison", Crumbs: []link{{Text: "Comparison of runs"}}, Body: b}, nil
}

// narrowKeys returns the keys that a request asks for, and their form.
func narrowKeys(r *http.Request, all []specs.Key) ([]specs.Key, *listing.Form) {
	return listing.Narrow(r, all, keysPerPage, listing.Order[specs.Key]{
		Prefix: "key_", Anchor: "#keys", Text: func(k specs.Key) string { return k.Key + " " + strings.Join(k.Values, " ") },
	})
}

// overlay makes figures with a line for each run.
func (s *Server) overlay(ctx context.Context, b *compareBody, runs []record.Run) error {
	for _, run := range runs {
		steps, err := s.history(ctx, run)
		if err != nil {
			return err
		}
		j, err := s.judged(ctx, run)
		if err != nil {
			return err
		}
		data := s.curveData(run, b.Range, steps, j.evaluations)
		data.Policies = nil // a run has one line in a figure; those of its policies are on its page
		data.Evaluations = slices.DeleteFunc(slices.Clone(data.Evaluations), func(e record.Evaluation) bool { return !evaluation.IsOwn(e.Policy) })
		for i, f := range curves.Of(data) {
			line := figure.Curve{Name: run.Name, Points: f.Lines[0].Points}
			if len(b.Figures) <= i {
				f.Lines = nil
				b.Figures = append(b.Figures, f)
			}
			b.Figures[i].Lines = append(b.Figures[i].Lines, line)
		}
	}
	b.Figures = slices.DeleteFunc(b.Figures, figure.Figure.Empty)
	return nil
}

// maxBetween is how many settings are listed at most.
const maxBetween = 60

// between describes the time from one version to the other.
type between struct {
	Sentence string
	// First and Last are the pages of the first and the last step, where both versions are of
	// one run.
	First, Last link
	Settings    []string    // that a person changed
	Keys        []specs.Key // of the specs, where the versions are of two runs
	KeySearch   *listing.Form
	MoreKeys    int
	Runs        string // the page that compares their runs
	Metrics     []metricChange
	// MetricSearch is the form of Metrics.
	MetricSearch *listing.Form
}

// metricChange is a metric of the steps that made two versions.
type metricChange struct {
	Name       string
	A, B       float64
	Difference *float64
}

// between adds what changed between two versions, as far as it is recorded.
func (s *Server) between(ctx context.Context, b *pairBody) error {
	a, okA := versionOf(b.A)
	z, okB := versionOf(b.B)
	if !okA || !okB {
		return nil
	}
	var runs []record.Run
	for _, id := range []model.VersionID{a, z} {
		run, err := s.Records.Run(ctx, id.Run)
		if errors.Is(err, record.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		runs = append(runs, run)
	}
	if a.Run == z.Run {
		if err := s.steppedBetween(ctx, &b.Between, a.Run, a.Number, z.Number); err != nil {
			return err
		}
	} else {
		keys, more, _ := specs.Differences(runs, maxKeys)
		b.Between.Sentence = fmt.Sprintf("The versions are from two runs whose specs differ in %s.", format.Counted(len(keys)+more, "key"))
		b.Between.Keys, b.Between.MoreKeys = keys, more
		b.Between.Runs = comparePath(a.Run, z.Run)
	}
	return s.metricsBetween(ctx, &b.Between, runs, a.Number, z.Number)
}

// steppedBetween describes the steps of a run between two of its versions, and the
// settings that a person changed during them.
func (s *Server) steppedBetween(ctx context.Context, b *between, run string, a, z int) error {
	low, high, later := a, z, "B"
	if a > z {
		low, high, later = z, a, "A"
	}
	switch high - low {
	case 0:
		b.Sentence = "Both are the same version."
		return nil
	case 1:
		b.Sentence = fmt.Sprintf("%s is one step further than the other.", later)
	default:
		b.Sentence = fmt.Sprintf("%s is %s further than the other.", later, readable.Count(high-low, "step"))
	}
	b.First = link{Text: fmt.Sprintf("step %d", low+1), Path: stepPath(run, record.Train, low+1)}
	if high > low+1 {
		b.Last = link{Text: fmt.Sprintf("step %d", high), Path: stepPath(run, record.Train, high)}
	}
	acted, err := s.Records.Actions(ctx, run, curves.MaxMarks)
	if err != nil {
		return err
	}
	for _, m := range curves.Settings(acted) {
		if int(m.X) > low && int(m.X) <= high && len(b.Settings) < maxBetween {
			b.Settings = append(b.Settings, m.Text)
		}
	}
	slices.Reverse(b.Settings) // the first one first
	return nil
}

// metricsBetween compares the metrics of the two steps that made the versions.
func (s *Server) metricsBetween(ctx context.Context, b *between, runs []record.Run, a, z int) error {
	var metrics [2]map[string]float64
	for i, number := range []int{a, z} {
		steps, err := s.history(ctx, runs[i])
		if err != nil {
			return err
		}
		at, ok := slices.BinarySearchFunc(steps, number, func(one record.Step, step int) int { return one.Step - step })
		if !ok {
			return nil // version 0, or one of a step that is not finished
		}
		metrics[i] = steps[at].Metrics
	}
	for _, name := range slices.Sorted(maps.Keys(metrics[0])) {
		after, ok := metrics[1][name]
		if before := metrics[0][name]; ok {
			d := after - before
			b.Metrics = append(b.Metrics, metricChange{format.FirstLine(name), before, after, &d})
		}
	}
	return nil
}

// evaluated has the figures of an evaluation. Attempts at temperature 0 are in Greedy
// alone.
type evaluated struct {
	Kind    record.Kind
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
func evaluates(sp spec.Spec, kind record.Kind) bool {
	return kind == record.Gate || kind == record.Test || string(kind) == sp.Evaluation.Only
}

// greedyFrom returns the first sample that an evaluation makes at temperature 0, in
// addition to those at the temperature of the spec. Only evaluations on the test split
// have such a sample.
func greedyFrom(sp spec.Spec, kind record.Kind) int {
	if kind == record.Test && evaluates(sp, kind) {
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

// evaluated returns the figures of the evaluation whose attempts are given, of the version, split
// and policy that e has. Without a policy it is none that is put on record.
func (s *Server) evaluated(ctx context.Context, run record.Run, e record.Evaluation, trials []record.Trial) (*evaluated, error) {
	sp, kind := specOf(run), e.Kind
	samples := sp.Evaluation.Samples
	out := evaluated{Kind: kind, Version: e.Version, Path: blockPath(run.Name, kind, e.Version, e.Policy), Success: sp.Evaluation.SuccessThreshold()}
	out.Total = run.Splits[kind].Count * samples
	if kind == record.Test {
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
	out.Final = e.Policy == "" && out.Done == out.Total // nothing else says that it has ended
	if e.Policy != "" {
		if err := s.addRecorded(ctx, run, sp, e, &out); err != nil {
			return nil, err
		}
	}
	fraction, err := s.fractions(ctx, run)
	out.Low, out.High = curves.Interval(out.Mean, out.StdError, fraction)
	return &out, err
}

// addRecorded adds what is on record of an evaluation once it has ended.
func (s *Server) addRecorded(ctx context.Context, run record.Run, sp spec.Spec, e record.Evaluation, out *evaluated) error {
	recorded, err := s.Records.EvaluationsBetween(ctx, run.Name, e.Policy, e.Version, e.Version+1)
	if err != nil {
		return err
	}
	recorded = slices.DeleteFunc(recorded, func(one record.Evaluation) bool { return one.Kind != e.Kind })
	passes, err := report.Evaluations(ctx, s.Records, recorded, sp)
	if err != nil {
		return err
	}
	if len(passes) > 0 {
		e := passes[0]
		out.Final, out.Mean, out.StdError, out.Greedy, out.Pass, out.Count = true, e.Mean, e.StdError, e.Greedy, e.Pass, e.Rollouts
	}
	out.Changed, err = s.changedSince(ctx, run, e)
	return err
}

// changedSince returns the path of the page that compares an evaluation with the first one
// on its split, or "" if it is the first.
func (s *Server) changedSince(ctx context.Context, run record.Run, e record.Evaluation) (string, error) {
	j, err := s.judged(ctx, run)
	if err != nil {
		return "", err
	}
	first := slices.IndexFunc(j.evaluations, func(one record.Evaluation) bool {
		return one.Kind == e.Kind && (one.Policy == e.Policy || evaluation.IsOwn(one.Policy))
	})
	if first < 0 || j.evaluations[first].Version >= e.Version {
		return "", nil
	}
	e.Run = run.Name
	return changePath(j.evaluations[first], e), nil
}

// byDifficulty orders the groups of an evaluation, those with the lowest mean first.
func byDifficulty(a, b groupRow) int {
	return cmp.Or(cmp.Compare(a.Rewards.Mean, b.Rewards.Mean), cmp.Compare(a.Task, b.Task))
}
