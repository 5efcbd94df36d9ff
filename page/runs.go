package page

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/access"
	"github.com/fulgurite/fulgurite/page/actions"
	"github.com/fulgurite/fulgurite/page/figure"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
)

// runsPerPage is how many runs a list has.
const runsPerPage = 50

// maxWaits is how many causes are named that keep a run from going on.
const maxWaits = 5

// maxRuns is above the number of runs of every store.
const maxRuns = 1 << 30

// runsBody is the list of runs.
type runsBody struct {
	Runs   []runRow
	Doubt  string // why Temporal could not be asked
	Search *listing.Form
	Starts bool // the reader may start one
}

// runRow is a run in the list.
type runRow struct {
	record.Run
	Path          string
	Step, Planned int
	Reward        *float64
	Spark         template.HTML
	Promoted      *int
	Pinned        bool
	// PromotedPolicies names the promoted version of each policy, if each is promoted alone.
	PromotedPolicies []string
	Took             time.Duration
	Notes            []note // what keeps it from going on, or why it ended
	Doing            string
	AllFailed        bool // every attempt of its steps, or of its evaluation, failed
	// Only says that the run has no steps; Reward is then the mean of its evaluation.
	Only bool
	// Searches says that the run searches for better prompts. It has no steps; Reward is then
	// the mean of the promoted version on the gate split.
	Searches bool
	// UnderWay is the page of the evaluation that is under way, or "".
	UnderWay string
}

func (s *Server) runs(r *http.Request) (view, error) {
	ctx := r.Context()
	b := runsBody{Starts: s.readerOf(r).Starts && s.reachable(ctx)}
	shown, err := s.runsOf(r, &b)
	if err != nil {
		return view{}, err
	}
	if s.Live != nil {
		if shown, err = s.liveRuns(ctx, shown); err != nil {
			b.Doubt = format.Clip(err.Error(), format.MaxOfMessage).Text
		}
	}
	for _, run := range shown {
		row, err := s.runRow(ctx, run)
		if err != nil {
			return view{}, err
		}
		b.Runs = append(b.Runs, row)
	}
	return view{template: "runs", Title: "Runs", Body: b, Section: "/", Every: renewEvery}, nil
}

// runsOf returns the runs that a request asks for, and adds the form for the list. The store
// searches them, except by rewards, which are read of every run then.
func (s *Server) runsOf(r *http.Request, b *runsBody) ([]record.Run, error) {
	ctx := r.Context()
	asked, form := listing.Read(r, runOrder(nil))
	if asked.Sort == sortReward || asked.Sort == sortLow {
		return s.runsByReward(r, b)
	}
	q := record.RunQuery{Word: asked.Word, Order: record.RunOrder(asked.Sort), From: min(asked.From, maxRuns), Most: runsPerPage}
	switch asked.Filter {
	case filterRunning, filterCompleted:
		q.Status = record.Status(asked.Filter)
	case filterOtherwise:
		q.Otherwise = true
	}
	shown, found, err := s.Records.RunsLike(ctx, q)
	if err != nil {
		return nil, err
	}
	form.Found, form.Total = found, found
	if asked.Narrows() {
		if _, form.Total, err = s.Records.RunsLike(ctx, record.RunQuery{}); err != nil {
			return nil, err
		}
	}
	form.Turn(q.From, runsPerPage, q.From+runsPerPage < found)
	if form.Total > listing.SearchAfter || asked.Narrows() {
		b.Search = form
	}
	return shown, nil
}

// runsByReward sorts all runs by the reward of their last step.
func (s *Server) runsByReward(r *http.Request, b *runsBody) ([]record.Run, error) {
	all, err := s.Records.LatestRuns(r.Context(), 0, maxRuns)
	if err != nil {
		return nil, err
	}
	rewards, err := s.lastRewards(r.Context(), all)
	if err != nil {
		return nil, err
	}
	var shown []record.Run
	shown, b.Search = listing.Narrow(r, all, runsPerPage, runOrder(rewards))
	return shown, nil
}

// lastRewards returns the reward of the last step of each run that has one.
func (s *Server) lastRewards(ctx context.Context, runs []record.Run) (map[string]*float64, error) {
	out := map[string]*float64{}
	for _, run := range runs {
		step, err := s.Records.LastStep(ctx, run.Name, model.DefaultPolicy)
		if errors.Is(err, record.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if v, ok := step.Metrics["reward/mean"]; ok {
			out[run.Name] = &v
		}
	}
	return out, nil
}

// The names of filters and of those orders that the store does not know.
const (
	filterRunning   = string(record.Running)
	filterCompleted = string(record.Completed)
	filterOtherwise = "failed"
	sortReward      = "reward"
	sortLow         = "low"
)

// runOrder says how runs can be searched, filtered and sorted. The orders without Compare are
// the store's.
func runOrder(rewards map[string]*float64) listing.Order[record.Run] {
	return listing.Order[record.Run]{
		Text: func(run record.Run) string { return run.Name },
		Filters: []listing.Filter[record.Run]{
			{Text: "all"},
			{Name: filterRunning, Text: "running", Keep: func(run record.Run) bool { return run.Status == record.Running }},
			{Name: filterCompleted, Text: "completed", Keep: func(run record.Run) bool { return run.Status == record.Completed }},
			{Name: filterOtherwise, Text: "ended otherwise", Keep: func(run record.Run) bool { return run.Status != record.Running && run.Status != record.Completed }},
		},
		Sorts: []listing.Sort[record.Run]{
			{Text: "newest"},
			{Name: string(record.OldestRuns), Text: "oldest"},
			{Name: string(record.RunsByName), Text: "name"},
			{Name: sortReward, Text: "last reward, highest first", Compare: func(a, b record.Run) int { return compareKnown(rewards[a.Name], rewards[b.Name], -1) }},
			{Name: sortLow, Text: "last reward, lowest first", Compare: func(a, b record.Run) int { return compareKnown(rewards[a.Name], rewards[b.Name], 1) }},
			{Name: string(record.LongestRuns), Text: "duration, longest first"},
		},
	}
}

// reachable reports whether runs can be asked now, which means that something could let a
// run go on.
func (s *Server) reachable(ctx context.Context) bool {
	return s.Operator != nil && s.Operator.Reach(ctx) == nil
}

func (s *Server) runRow(ctx context.Context, run record.Run) (runRow, error) {
	row := runRow{Run: run, Path: runPath(run.Name), Took: time.Since(run.Created)}
	if !run.Finished.IsZero() {
		row.Took = run.Finished.Sub(run.Created)
	}
	row.Notes = stopNote(run)
	if text := run.Failure().Error; text != "" {
		row.Notes = append(row.Notes, note{Text: format.FirstLine(s.Place.Complete(text))})
	}
	if sp, err := spec.Stored(run.Spec); err == nil { // one that was refused may be anything
		acted, err := s.Records.Actions(ctx, run.Name, report.MaxActions)
		if err != nil {
			return row, fmt.Errorf("read what people did to run %s: %w", run.Name, err)
		}
		row.Planned = report.PlannedSteps(sp.Training.Total(run.Splits[record.Train].Count), acted)
	}
	steps, err := s.history(ctx, run)
	if err != nil {
		return row, err
	}
	if row.AllFailed, err = s.allFailed(ctx, run, steps); err != nil {
		return row, err
	}
	rewards := make([]float64, 0, len(steps))
	for _, step := range steps {
		if v, ok := step.Reward(); ok {
			rewards = append(rewards, v)
			row.Reward = &v
		}
		row.Step = step.Step
	}
	row.Spark = figure.Sparkline(rewards)
	if row.Only = specOf(run).Evaluation.Only != ""; row.Only {
		if row.Reward, err = s.resultReward(ctx, run); err != nil {
			return row, err
		}
	}
	row.Searches = searches(run)
	if row.Promoted, row.Pinned, err = s.promoted(ctx, run.Name, promptsearch.PolicyOf(run)); err != nil {
		return row, err
	}
	if row.PromotedPolicies, err = s.promotedPolicies(ctx, run); err != nil {
		return row, err
	}
	if row.Searches {
		row.Planned = 0
		if row.Reward, err = s.gateReward(ctx, run, row.Promoted); err != nil {
			return row, err
		}
	}
	state, doubt := s.state(ctx, run)
	if doubt != "" {
		row.Notes = append(row.Notes, note{Text: "Temporal does not say what it does: " + format.FirstLine(doubt)})
	}
	if state != nil {
		row.Doing, row.UnderWay = state.text(), evaluationPath(run.Name, *state)
		row.Notes = append(row.Notes, s.obstacles(ctx, run, *state)...)
	}
	return row, nil
}

// stopNote says who stopped a run. It is empty if nobody did.
func stopNote(run record.Run) []note {
	stop := run.Stop()
	if stop == nil {
		return nil
	}
	return []note{{Text: format.FirstLine(fmt.Sprintf("stopped at %d of %d, %s", stop.After, stop.Of, stop.Text()))}}
}

// allFailed reports whether every agent of a run failed: in all of its steps, or, if it has
// none and is over, in its newest evaluation.
func (s *Server) allFailed(ctx context.Context, run record.Run, steps []record.Step) (bool, error) {
	attempts, failed := 0.0, 0.0
	for _, step := range steps {
		attempts, failed = attempts+step.Metrics["batch/rollouts"], failed+step.Metrics["batch/failed"]
	}
	if len(steps) > 0 || run.Status != record.Completed {
		return attempts > 0 && attempts == failed, nil
	}
	return s.failures.Of(ctx, run.Name+" "+run.ExecutionID, func(ctx context.Context) (bool, error) {
		j, err := s.judged(ctx, run)
		if err != nil || len(j.evaluations) == 0 {
			return false, err
		}
		last := j.evaluations[len(j.evaluations)-1]
		trials, err := s.Records.TrialsOfStep(ctx, run.Name, last.Kind, last.Version)
		done := slices.ContainsFunc(trials, func(t record.Trial) bool { return t.Outcome == record.OutcomeCompleted })
		return len(trials) > 0 && !done, err
	})
}

// resultReward returns the mean reward of a run that only evaluates, or nil until it is on
// record.
func (s *Server) resultReward(ctx context.Context, run record.Run) (*float64, error) {
	j, err := s.judged(ctx, run)
	if err != nil || len(j.evaluations) == 0 {
		return nil, err
	}
	return &j.evaluations[0].Mean, nil
}

// gateReward returns the mean of a version on the gate split, or nil if it is not known.
func (s *Server) gateReward(ctx context.Context, run record.Run, version *int) (*float64, error) {
	j, err := s.judged(ctx, run)
	if err != nil || version == nil {
		return nil, err
	}
	for _, e := range j.evaluations {
		if e.Kind == record.Gate && e.Version == *version {
			return &e.Mean, nil
		}
	}
	return nil, nil
}

// evaluationPath returns the path of the evaluation that a run is at, or "" if it is at
// none.
func evaluationPath(run string, now State) string {
	place, ok := strings.CutPrefix(now.Subject, run+"/")
	if !ok || now.Phase != "evaluation" {
		return ""
	}
	// Of one of several policies it is "gate-5/writer", or "gate-5/writer/baseline".
	step, policy, named := strings.Cut(place, "/")
	if !named {
		return runPath(run) + "/" + place
	}
	policy, baseline := strings.CutSuffix(policy, "/baseline")
	return runPath(run) + "/" + step + "?" + blockQuery(policy, baseline)
}

// promoted returns the promoted version, or nil if there is none, and whether it is
// pinned.
func (s *Server) promoted(ctx context.Context, run, policy string) (*int, bool, error) {
	p, err := s.Records.Promoted(ctx, run, policy)
	if errors.Is(err, record.ErrNotFound) {
		return nil, false, nil
	}
	return &p.Version, p.Pinned(), err
}

// promotedPolicies names the promoted version of each policy of a run that promotes each alone.
func (s *Server) promotedPolicies(ctx context.Context, run record.Run) ([]string, error) {
	of := specOf(run)
	if !of.Promotion.Alone {
		return nil, nil
	}
	var out []string
	for _, name := range of.PolicyNames() {
		version, pinned, err := s.promoted(ctx, run.Name, name)
		if err != nil || version == nil {
			return nil, err
		}
		text := fmt.Sprintf("%s@%d", name, *version)
		if pinned {
			text += ", pinned"
		}
		out = append(out, text)
	}
	return out, nil
}

// text describes the state of a run.
func (s State) text() string {
	text := format.Clean(s.Phase)
	if s.Subject != "" {
		text += ": " + format.FirstLine(s.Subject)
	}
	if s.Total > 0 {
		text += fmt.Sprintf(", %d of %s", s.Done, readable.Count(s.Total, "attempt"))
	}
	if s.Pace != "" {
		text += ", " + s.Pace
	}
	return text
}

// note is a sentence about a run, and what can be done about it.
type note struct {
	Text  string
	Links []link
}

// obstacles describes what keeps a run from going on. A reader who may act also gets
// links to the forms that help.
func (s *Server) obstacles(ctx context.Context, run record.Run, now State) []note {
	var out []note
	act := func(text string, path ...string) link {
		return link{Text: text, Path: actions.Path(run.Name) + "/" + strings.Join(path, "")}
	}
	if stop := now.Stop; stop != nil {
		out = append(out, note{Text: format.FirstLine(fmt.Sprintf("stopping, %s; it ends after step %d of %d", stop.Text(), stop.After, stop.Of))})
	}
	if now.Paused {
		out = append(out, note{"paused until somebody resumes it", []link{act("Resume", "resume")}})
	}
	if now.Pending >= 0 {
		query := fmt.Sprintf("?version=%d", now.Pending)
		out = append(out, note{fmt.Sprintf("version %d waits for somebody to approve or reject it", now.Pending), []link{act("Approve", "approve", query), act("Reject", "reject", query)}})
	}
	acts := s.Operator != nil && access.Of(ctx).May(access.Operate)
	if !acts {
		for i := range out {
			out[i].Links = nil
		}
	}
	waits := now.Waits
	if more := len(waits) - maxWaits; more > 0 {
		waits = append(slices.Clone(waits[:maxWaits]), fmt.Sprintf("and %d more of other causes", more))
	}
	for i, text := range waits {
		n := note{Text: format.FirstLine(s.Place.Complete(text))}
		if i == len(waits)-1 && acts {
			n.Links = []link{act("Stop now", string(actions.StopNow))}
		}
		out = append(out, n)
	}
	return out
}
