package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/curves"
	"github.com/fulgurite/fulgurite/page/figure"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/page/verdict"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/spec"
)

const (
	// groupsPerPage is how many groups a step shows at once.
	groupsPerPage = 100
	// maxMetrics is how many metrics are listed at once.
	maxMetrics = 200
	// maxPicked is how many attempts are listed that ended in the same way.
	maxPicked = 100
)

// stepBody is the page of a step or of an evaluation.
type stepBody struct {
	Kind     record.Kind
	Step     int
	Previous string // paths of the neighbouring steps
	Next     string
	Groups   []groupRow
	Search   *listing.Form
	Number   int // of groups
	Attempts int
	Flat     int
	Rewards  spread   // of the attempts that are here
	Reward   *float64 // of a finished step, with the deviation in its batch
	Std      *float64
	Failures []tally
	Outcomes []tally
	CutOff   tally // the attempts with a reply that a limit of tokens ended
	// Evaluated has the figures of an evaluation. It is nil for a step of the training.
	Evaluated    *evaluated
	Quarantined  []quarantineRow
	SetApart     *listing.Form // of Quarantined
	Chosen       string        // how many tasks a curriculum chose for each reason, or ""
	Metrics      []namedValue
	MetricSearch *listing.Form
	Reserve      string
	ReserveCount int
	Lag          *float64 // how many steps behind the sampling versions were, on average
	Again        bool     // the lag is still being counted
	// Blocks are the evaluations of the step, of which one is shown, if policies are promoted
	// alone. Title is that of the page, and From names what its attempts sampled from, if it is
	// of one of several policies.
	Blocks []block
	Title  string
	From   string
	// All is the query for all attempts. within is the part of each query that chooses what
	// the page is about; it is empty or ends in "&".
	All    string
	within string
	// Picked are the attempts that ended in the way that the reader asked for.
	Picked       []pickedRow
	PickedSearch *listing.Form
	PickedBy     string
}

// tally is a count, with its share of the largest count.
type tally struct {
	Name  string
	Word  string // as it is on record, where the name says it in other words
	Cause string // of the newest of them, in the agent's words
	Path  string // of the attempts
	Count int
	Share float64
}

// namedValue is a number with a name.
type namedValue struct {
	Name  string
	Value float64
}

// narrowMetrics returns the metrics that a request asks for, and their form.
func narrowMetrics(r *http.Request, all []namedValue) ([]namedValue, *listing.Form) {
	return listing.Narrow(r, all, maxMetrics, listing.Order[namedValue]{Prefix: "metric_", Anchor: "#metrics", Text: func(v namedValue) string { return v.Name }})
}

// spread are rewards in figures.
type spread struct {
	Count     int
	Mean, Std float64
	Low, High float64
}

// groupRow is a group of a step.
type groupRow struct {
	Task     int
	TaskID   string
	Path     string
	Rewards  spread
	Bars     template.HTML
	Samples  int
	Passed   int      // samples whose reward is a success, of those in Rewards
	Greedy   *float64 // reward of the attempt at temperature 0, which is not in Rewards
	Attempts int
	Tokens   int // of the attempts that count, on average
	Reason   string
	Flat     bool
}

func (s *Server) step(r *http.Request) (view, error) {
	ctx := r.Context()
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	id, err := placeOf(run.Name, r.PathValue("step"), "0", "0", "1")
	if err != nil {
		return view{}, err
	}
	if id.Kind == record.Train && specOf(run).FromTraffic() {
		return s.segment(r, run, id.Step)
	}
	trials, err := s.Records.TrialsOfStep(ctx, run.Name, id.Kind, id.Step)
	if err != nil {
		return view{}, err
	}
	if len(trials) == 0 {
		return view{}, fmt.Errorf("%w: run %s has no attempt of %s-%d", record.ErrNotFound, run.Name, id.Kind, id.Step)
	}
	sp := specOf(run)
	b, evaluated := stepBody{Kind: id.Kind, Step: id.Step, Title: stepName(id.Kind, id.Step)}, record.Evaluation{Policy: promptsearch.PolicyOf(run)}
	evaluated.Kind, evaluated.Version = id.Kind, id.Step
	if b.Blocks = blocksOf(run, sp, trials); len(b.Blocks) > 0 {
		if trials, err = s.choose(r, &b, &evaluated); err != nil {
			return view{}, err
		}
	}
	b.Attempts, b.All = len(trials), "?"+b.within+"attempts#picked"
	if err := s.beside(ctx, run, &b); err != nil {
		return view{}, err
	}
	b.count(trials, run)
	if err := s.explain(ctx, &b, trials); err != nil {
		return view{}, err
	}
	if err := s.pick(r, &b, trials, run); err != nil {
		return view{}, err
	}
	if evaluates(sp, id.Kind) {
		if b.Evaluated, err = s.evaluated(ctx, run, evaluated, trials); err != nil {
			return view{}, err
		}
	}
	groups := groupsOf(trials, b.Rewards, sp)
	quarantined, err := s.quarantined(ctx, run.Name, id.Kind, id.Step)
	if err != nil {
		return view{}, err
	}
	var apart []quarantineRow
	for _, q := range quarantined {
		apart = append(apart, quarantineRow{q, fmt.Sprintf("%s/%d", stepPath(run.Name, q.Kind, q.Step), q.Task)})
	}
	b.Quarantined, b.SetApart = listing.Narrow(r, apart, listing.SearchAfter, quarantineOrder("quarantined_", "#quarantined"))
	b.Metrics, b.MetricSearch = narrowMetrics(r, b.Metrics)
	for i, g := range groups {
		for _, q := range quarantined {
			if q.Task == g.Task {
				groups[i].Reason = format.FirstLine(q.Reason)
			}
		}
		if g.Flat {
			b.Flat++
		}
	}
	if b.Evaluated != nil {
		slices.SortStableFunc(groups, byDifficulty)
	} else {
		slices.SortStableFunc(groups, func(a, c groupRow) int {
			return cmp.Or(cmp.Compare(c.Rewards.Std, a.Rewards.Std), cmp.Compare(a.Rewards.Mean, c.Rewards.Mean), cmp.Compare(a.Task, c.Task))
		})
	}
	b.Number = len(groups)
	b.Groups, b.Search = listing.Narrow(r, groups, groupsPerPage, groupOrder(b.Evaluated != nil))
	if c, ok, err := s.choice(ctx, id); err != nil {
		return view{}, err
	} else if ok {
		b.Chosen = format.Clip(c.String(), format.MaxOfResult).Text
	}
	v := runView("step", run, "Steps", link{Text: "Steps", Path: runPath(run.Name) + "/steps"}, link{Text: b.Title})
	v.Body = b
	return v, nil
}

// choose chooses the evaluation of a step that a reader asks for, and returns its attempts. It
// notes in e which it is; one that is only the baseline of another is not on record.
func (s *Server) choose(r *http.Request, b *stepBody, e *record.Evaluation) (trials []record.Trial, err error) {
	i := chosenBlock(b.Blocks, r.URL.Query())
	if i < 0 {
		return nil, fmt.Errorf("%w: run %s has no such evaluation of %s-%d", record.ErrNotFound, r.PathValue("run"), b.Kind, b.Step)
	}
	chosen := &b.Blocks[i]
	chosen.Shown = true
	b.Title, b.within = blockName(b.Kind, b.Step, chosen.Policy, chosen.Baseline), blockQuery(chosen.Policy, chosen.Baseline)+"&"
	if e.Policy = chosen.Policy; chosen.Baseline {
		e.Policy = ""
	}
	b.From, err = s.sampledFrom(r.Context(), chosen.trials[0].Address)
	return chosen.trials, err
}

// stepName returns the title of a step or an evaluation.
func stepName(kind record.Kind, step int) string {
	switch kind {
	case record.Train:
		return fmt.Sprintf("Step %d", step)
	case record.Reserve:
		return fmt.Sprintf("Step %d, reserve", step)
	case record.Minibatch, record.Validation:
		return fmt.Sprintf("Evaluation %d of a candidate, %s", step, kind)
	}
	return fmt.Sprintf("Version %d on %s", step, kind)
}

// placeOf reads the parts of an address after the run.
func placeOf(run string, parts ...string) (record.Address, error) {
	return record.ParseAddress(run + "/" + strings.Join(parts, "/"))
}

// beside adds the records of the step, and links to its neighbours.
func (s *Server) beside(ctx context.Context, run record.Run, b *stepBody) error {
	if b.Kind != record.Train {
		return nil
	}
	steps, err := s.history(ctx, run)
	if err != nil {
		return err
	}
	lags, err := s.lagsOf(ctx, run, steps)
	if err != nil {
		return err
	}
	b.Lag, b.Again = lagOf(lags.Value, b.Step), lags.Making
	if b.Step > 1 {
		b.Previous = stepPath(run.Name, record.Train, b.Step-1)
	}
	for _, one := range steps {
		if one.Step == b.Step {
			for _, name := range slices.Sorted(maps.Keys(one.Metrics)) {
				b.Metrics = append(b.Metrics, namedValue{name, one.Metrics[name]})
			}
			b.Next = stepPath(run.Name, record.Train, b.Step+1)
			row := stepRows(run, []record.Step{one})[0]
			b.Reward, b.Std = row.Reward, row.Spread
		}
	}
	if n := len(steps); n > 0 && b.Step == steps[n-1].Step && run.Status != record.Running {
		b.Next = ""
	}
	reserve, err := s.Records.TrialsOfStep(ctx, run.Name, record.Reserve, b.Step)
	if len(reserve) > 0 {
		b.Reserve, b.ReserveCount = stepPath(run.Name, record.Reserve, b.Step), len(reserve)
	}
	return err
}

func (s *Server) quarantined(ctx context.Context, run string, kind record.Kind, step int) ([]record.Quarantine, error) {
	all, err := s.Records.QuarantinesOfStep(ctx, run, model.DefaultPolicy, step)
	return slices.DeleteFunc(all, func(q record.Quarantine) bool { return q.Kind != kind }), err
}

// choice returns the curriculum's choice for the step of an attempt, if there is one.
func (s *Server) choice(ctx context.Context, at record.Address) (record.Choice, bool, error) {
	if at.Kind != record.Train && at.Kind != record.Reserve {
		return record.Choice{}, false, nil
	}
	c, err := s.Records.Choice(ctx, at.Run, model.DefaultPolicy, at.Step)
	if errors.Is(err, record.ErrNotFound) {
		return record.Choice{}, false, nil
	}
	return c, err == nil, err
}

// count adds the rewards, outcomes and failures.
func (b *stepBody) count(trials []record.Trial, run record.Run) {
	outcomes, failures := map[string]int{}, map[string]int{}
	var rewards []float64
	states := record.StatesOf(trials, run)
	for i, t := range trials {
		last := i+1 == len(trials) || trials[i+1].RolloutID != t.RolloutID
		outcomes[words(states[i])]++
		if t.CutOff > 0 {
			b.CutOff.Count++
		}
		if word := failureOf(t); word != "" {
			failures[word]++
		}
		if last && t.Reward != nil {
			rewards = append(rewards, *t.Reward)
		}
	}
	b.Rewards, b.Outcomes, b.Failures = spreadOf(rewards), tallies(outcomes), tallies(failures)
	b.CutOff.Share, b.CutOff.Path = float64(b.CutOff.Count)/float64(max(1, len(trials))), "?"+b.within+"cut_off=1#picked"
	for i := range b.Outcomes {
		b.Outcomes[i].Path = "?" + b.within + "outcome=" + url.QueryEscape(b.Outcomes[i].Name) + "#picked"
	}
	for i := range b.Failures {
		f := &b.Failures[i]
		f.Path = "?" + b.within + "failure=" + url.QueryEscape(f.Name) + "#picked"
		if words := verdict.Failure(f.Name); words != f.Name {
			f.Name, f.Word = words, f.Name
		}
	}
}

// failureOf returns the word for how an agent failed, or "" if it did not fail.
func failureOf(t record.Trial) string {
	if t.Failure == "" && t.Outcome == record.AgentFailed {
		return "unknown"
	}
	return format.FirstLine(t.Failure)
}

// cause returns the line that says why the agent of an attempt failed, or "" if it did not.
func (s *Server) cause(ctx context.Context, t record.Trial) (string, error) {
	if failureOf(t) == "" {
		return "", nil
	}
	a, err := s.Records.Attempt(ctx, t.Address)
	return format.FirstLine(verdict.Cause(a.Failure, a.Error)), err
}

// explain adds to each kind of failure the cause of the newest one.
func (s *Server) explain(ctx context.Context, b *stepBody, trials []record.Trial) error {
	for i := range b.Failures {
		f := &b.Failures[i]
		newest := record.Trial{}
		for _, t := range trials {
			if failureOf(t) == cmp.Or(f.Word, f.Name) && !t.Begun.Before(newest.Begun) {
				newest = t
			}
		}
		var err error
		if f.Cause, err = s.cause(ctx, newest); err != nil {
			return err
		}
	}
	return nil
}

// tallies returns counts as a list, the largest first.
func tallies(counts map[string]int) []tally {
	var out []tally
	most := 0
	for name, n := range counts {
		out, most = append(out, tally{Name: name, Count: n}), max(most, n)
	}
	for i := range out {
		out[i].Share = float64(out[i].Count) / float64(most)
	}
	slices.SortFunc(out, func(a, b tally) int { return cmp.Or(b.Count-a.Count, strings.Compare(a.Name, b.Name)) })
	return out
}

// Bar draws the share as a bar.
func (t tally) Bar() template.HTML {
	d := figure.Drawing{}
	d.Add(`<svg class="share" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect width="%.1f" height="8"/></svg>`, 100*t.Share)
	return template.HTML(d.String()) // it has numbers alone
}

func spreadOf(values []float64) spread {
	s := spread{Count: len(values)}
	if s.Count == 0 {
		return s
	}
	s.Low, s.High = values[0], values[0]
	for _, v := range values {
		s.Mean += v / float64(s.Count)
		s.Low, s.High = min(s.Low, v), max(s.High, v)
	}
	for _, v := range values {
		s.Std += (v - s.Mean) * (v - s.Mean) / float64(s.Count)
	}
	s.Std = math.Sqrt(s.Std)
	return s
}

// groupsOf returns the rows of the groups to which attempts belong. The attempts must be
// in order. The bars of all groups use the scale of the step.
func groupsOf(trials []record.Trial, scale spread, sp spec.Spec) []groupRow {
	var out []groupRow
	for i := 0; i < len(trials); {
		first := trials[i]
		g := groupRow{Task: first.Task, TaskID: format.Clip(first.TaskID, format.MaxOfLine).Text, Path: groupPath(first.RolloutID)}
		var rewards []float64
		var counts []record.Trial
		for ; i < len(trials) && trials[i].Task == first.Task; i++ {
			g.Attempts++
			if i+1 < len(trials) && trials[i+1].RolloutID == trials[i].RolloutID {
				continue // a later attempt took its place
			}
			counts = append(counts, trials[i])
			g.Tokens += trials[i].Tokens
			switch reward := trials[i].Reward; {
			case trials[i].Sample >= greedyFrom(sp, first.Kind):
				g.Greedy = reward
			case reward != nil:
				if rewards = append(rewards, *reward); spec.Reaches(*reward, sp.Evaluation.SuccessThreshold()) {
					g.Passed++
				}
			}
		}
		g.Samples, g.Rewards = len(counts), spreadOf(rewards)
		g.Tokens /= max(1, g.Samples)
		g.Flat = g.Rewards.Count == g.Samples && g.Samples > 1 && g.Rewards.Low == g.Rewards.High
		g.Bars = bars(counts, scale)
		out = append(out, g)
	}
	return out
}

// maxBars is how many bars are drawn for a group.
const maxBars = 64

// bars draws the rewards of a group's samples next to each other.
func bars(counted []record.Trial, scale spread) template.HTML {
	const height, width = 22.0, 6.0
	shown := counted[:min(len(counted), maxBars)]
	d := figure.Drawing{}
	d.Add(`<svg class="bars" viewBox="0 0 %g %g" width="%g" height="%g" aria-hidden="true">`, width*float64(len(shown)), height, width*float64(len(shown)), height)
	low, high := min(scale.Low, 0), max(scale.High, 0)
	for i, t := range shown {
		x := float64(i)*width + 1
		switch {
		case t.Reward == nil:
			d.Add(`<rect class="none" x="%.0f" y="%.1f" width="4" height="2"/>`, x, height-2)
		case high > low:
			h := 2 + (*t.Reward-low)/(high-low)*(height-2)
			d.Add(`<rect x="%.0f" y="%.1f" width="4" height="%.1f"/>`, x, height-h, h)
		default:
			d.Add(`<rect x="%.0f" y="%.1f" width="4" height="2"/>`, x, height-2)
		}
	}
	d.Add(`</svg>`)
	return template.HTML(d.String()) // it has numbers alone
}

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
	Of        string // the words after the number of a version of one of several policies
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
	under, err := s.Records.TrialsOfStep(ctx, run.Name, record.Train, next)
	if err != nil {
		return view{}, err
	}
	if len(under) > 0 {
		b.UnderWay, b.UnderWayPath = next, stepPath(run.Name, record.Train, next)
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
	of := func(kind record.Kind) func(evaluationRow) bool {
		return func(e evaluationRow) bool { return e.Kind == kind }
	}
	return listing.Order[evaluationRow]{
		Prefix: "evaluation_", Anchor: "#evaluations",
		Text: func(e evaluationRow) string { return fmt.Sprintf("%s version %d%s", e.Kind, e.Version, e.Of) },
		Filters: []listing.Filter[evaluationRow]{
			{Text: "all"},
			{Name: string(record.Gate), Text: "gate", Keep: of(record.Gate)},
			{Name: string(record.Test), Text: "test", Keep: of(record.Test)},
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
	return evaluationRow{e, blockPath(run.Name, e.Kind, e.Version, e.Policy), ofPolicy(e.Policy), low, high}
}
