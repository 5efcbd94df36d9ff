package page

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/figure"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/experiment"
)

const (
	// experimentsPerPage and segmentsPerPage are how many of them a list has.
	experimentsPerPage = 20
	segmentsPerPage    = 50
	// conversationsOfSegment is how many conversations of a segment are listed at once.
	conversationsOfSegment = 100
)

// experimentsBody is the list of the experiments of a run, the newest first.
type experimentsBody struct {
	Conversations string // path
	Rows          []experimentRow
	Intervals     template.HTML
	Older, Newest string
	Asks          bool   // the spec has an experiment
	Policies      []link // the experiments of others
}

// MinUnits is how many effective units of each version an interval needs.
func (experimentsBody) MinUnits() int { return experiment.MinUnits }

// experimentRow is an experiment with the result of its last look.
type experimentRow struct {
	record.Experiment
	PolicyName    string // "" in a run of one policy
	Reason        string
	CandidatePath string
	ControlPath   string
	Conversations string // path of those with the candidate
	Result        *experiment.Result
	// Known says that the result has an interval.
	Known  bool
	Unread string // why the result is not shown
}

// Percent returns the share of users that get the candidate.
func (r experimentRow) Percent() string { return fmt.Sprintf("%.3g %%", 100*r.Share) }

// StatusClass returns the class of the status.
func (r experimentRow) StatusClass() string {
	switch r.Status {
	case record.ExperimentPromoted:
		return "good"
	case record.ExperimentWithdrawn:
		return "bad"
	case record.ExperimentRunning, record.ExperimentEnded:
	}
	return ""
}

// experiments lists experiments with their results on record.
func (s *Server) experiments(r *http.Request) (view, error) {
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	before, policy := number(r, "before"), askedPolicy(r, run)
	all, err := s.Records.ExperimentsBefore(r.Context(), run.Name, policy, before, experimentsPerPage+1)
	if err != nil {
		return view{}, err
	}
	of := specOf(run)
	b := experimentsBody{Conversations: conversationsPath(run.Name, nil), Asks: of.FromTraffic() && of.Traffic.Train.Experiment != nil, Policies: policyLinks(run, policy, experimentsPath)}
	if len(all) > experimentsPerPage {
		all = all[:experimentsPerPage]
		b.Older = olderThan(all[len(all)-1].Candidate, policy)
	}
	if before > 0 {
		b.Newest = experimentsPath(run.Name, policy)
	}
	drawn := figure.Intervals{Title: "Difference of the candidates' means from those of their controls"}
	running := false
	for _, e := range all {
		row := newExperimentRow(e)
		b.Rows = append(b.Rows, row)
		running = running || e.Status == record.ExperimentRunning
		if row.Known {
			drawn.Rows = append(drawn.Rows, figure.Interval{Name: fmt.Sprintf("%d against %d", e.Candidate, e.Control), Value: row.Result.Difference, Low: row.Result.Low, High: row.Result.High})
		}
	}
	b.Intervals = drawn.SVG()
	v := runView("experiments", run, "Conversations", link{Text: "Conversations", Path: b.Conversations}, link{Text: "Experiments"})
	if v.Follow = ""; running { // feedback is no progress of the run
		v.Every = renewEvery
	}
	v.Body = b
	return v, nil
}

// olderThan returns the query for what is older than a number, of a policy.
func olderThan(number int, policy string) string {
	query := url.Values{"before": {strconv.Itoa(number)}}
	if policy != model.DefaultPolicy {
		query.Set("policy", policy)
	}
	return "?" + query.Encode()
}

func newExperimentRow(e record.Experiment) experimentRow {
	answered := url.Values{"version": {strconv.Itoa(e.Candidate)}}
	if e.Policy != model.DefaultPolicy {
		answered.Set("policy", e.Policy)
	}
	row := experimentRow{
		Experiment: e, PolicyName: shownPolicy(e.Policy), Reason: format.Reason(format.Shown(e.Reason)), CandidatePath: versionPath(e.Run, e.Candidate), ControlPath: versionPath(e.Run, e.Control),
		Conversations: conversationsPath(e.Run, answered),
	}
	if len(e.Result) == 0 {
		return row
	}
	var result experiment.Result
	if err := json.Unmarshal(e.Result, &result); err != nil {
		row.Unread = format.FirstLine(err.Error())
		return row
	}
	row.Result, row.Known = &result, result.Known()
	return row
}

// segmentsBody is the list of the segments of a run, the newest first.
type segmentsBody struct {
	Conversations string // path
	Rows          []segmentRow
	Older, Newest string
	Learns        bool
	Policies      []link // the segments of others
}

// segmentRow is what a step learned from.
type segmentRow struct {
	record.Segment
	PolicyName       string // "" in a run of one policy
	Path, ParentPath string
	What             string // "reply" or "pair"
	Reasons          []tally
	Out              int // of all reasons
}

func newSegmentRow(one record.Segment) segmentRow {
	row := segmentRow{Segment: one, PolicyName: shownPolicy(one.Policy), Path: stepPath(one.Run, record.Train, one.Step) + policyQuery(one.Policy), ParentPath: versionPath(one.Run, one.Parent), What: "reply"}
	if one.Objective == string(record.FeedbackPreference) {
		row.What = "pair"
	}
	for _, why := range slices.Sorted(maps.Keys(one.LeftOut)) {
		row.Reasons = append(row.Reasons, tally{Name: format.FirstLine(why), Count: one.LeftOut[why]})
		row.Out += one.LeftOut[why]
	}
	slices.SortStableFunc(row.Reasons, func(a, b tally) int { return cmp.Compare(b.Count, a.Count) })
	return row
}

// segments lists what the steps of a run learned from.
func (s *Server) segments(r *http.Request) (view, error) {
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	before, policy := number(r, "before"), askedPolicy(r, run)
	all, err := s.Records.SegmentsBefore(r.Context(), run.Name, policy, before, segmentsPerPage+1)
	if err != nil {
		return view{}, err
	}
	b := segmentsBody{Conversations: conversationsPath(run.Name, nil), Learns: specOf(run).FromTraffic(), Policies: policyLinks(run, policy, segmentsPath)}
	if len(all) > segmentsPerPage {
		all = all[:segmentsPerPage]
		b.Older = olderThan(all[len(all)-1].Step, policy)
	}
	if before > 0 {
		b.Newest = segmentsPath(run.Name, policy)
	}
	for _, one := range all {
		b.Rows = append(b.Rows, newSegmentRow(one))
	}
	v := runView("segments", run, "Conversations", link{Text: "Conversations", Path: b.Conversations}, link{Text: "Segments"})
	v.Body = b
	return v, nil
}

// segmentBody is the page of a step that learns from conversations.
type segmentBody struct {
	segmentRow
	Previous, Next string
	Version        string // path of the version that it made
	Talks          []segmentTalk
	More           *listing.Form
	Metrics        []namedValue
	MetricSearch   *listing.Form
}

// segmentTalk is a conversation of a segment.
type segmentTalk struct {
	Number, Calls int
	Path          string
}

// segment shows what a step of a run learned from.
func (s *Server) segment(r *http.Request, run record.Run, step int) (view, error) {
	ctx, policy := r.Context(), askedPolicy(r, run)
	one, err := s.Records.Segment(ctx, run.Name, policy, step)
	if err != nil {
		return view{}, err
	}
	b := segmentBody{segmentRow: newSegmentRow(one)}
	if step > 1 {
		b.Previous = stepPath(run.Name, record.Train, step-1) + policyQuery(policy)
	}
	newer, err := s.Records.SegmentsBefore(ctx, run.Name, policy, step+2, 1)
	if err != nil {
		return view{}, err
	}
	if len(newer) > 0 && newer[0].Step == step+1 {
		b.Next = stepPath(run.Name, record.Train, step+1) + policyQuery(policy)
	}
	if err := s.madeOf(ctx, run, &b); err != nil {
		return view{}, err
	}
	b.Metrics, b.MetricSearch = narrowMetrics(r, b.Metrics)
	choice, form := listing.Read(r, listing.Order[segmentTalk]{Anchor: "#conversations"})
	from := min(choice.From, len(one.Conversations))
	to := min(from+conversationsOfSegment, len(one.Conversations))
	for i := from; i < to; i++ {
		talk := segmentTalk{Number: one.Conversations[i], Path: attemptPath(record.ConversationAddress(run.Name, one.Conversations[i]))}
		if i < len(one.Calls) {
			talk.Calls = one.Calls[i]
		}
		b.Talks = append(b.Talks, talk)
	}
	form.Turn(from, conversationsOfSegment, to < len(one.Conversations))
	b.More = form
	v := runView("segment", run, "Steps", link{Text: "Steps", Path: runPath(run.Name) + "/steps"}, link{Text: stepName(record.Train, step)})
	v.Body = b
	return v, nil
}

// madeOf adds the metrics of a finished step, and its version.
func (s *Server) madeOf(ctx context.Context, run record.Run, b *segmentBody) error {
	id := model.VersionID{Run: run.Name, Policy: model.DefaultPolicy, Number: b.Step}
	switch _, err := s.Records.Version(ctx, id); {
	case err == nil:
		b.Version = versionPath(run.Name, b.Step)
	case !errors.Is(err, record.ErrNotFound):
		return err
	}
	steps, err := s.history(ctx, run)
	if err != nil {
		return err
	}
	for _, one := range steps {
		if one.Step != b.Step {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(one.Metrics)) {
			b.Metrics = append(b.Metrics, namedValue{name, one.Metrics[name]})
		}
	}
	return nil
}
