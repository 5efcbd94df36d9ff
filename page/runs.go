package page

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/access"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/actions"
	"github.com/fulgurite/fulgurite/page/figure"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// runsPerPage is how many runs a list has.
const runsPerPage = 50

// mostRuns is above the number of runs of every store.
const mostRuns = 1 << 30

// runsBody is the list of runs.
type runsBody struct {
	Runs   []runRow
	Doubt  string // why Temporal could not be asked
	Newer  string
	Older  string
	From   int
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
	Took          time.Duration
	Notes         []note // what keeps it from going on, or why it ended
	Doing         string
}

func (s *Server) runs(r *http.Request) (view, error) {
	ctx := r.Context()
	from, _ := strconv.Atoi(r.URL.Query().Get("from")) // what is no number begins at the newest
	from = min(max(from, 0), mostRuns)
	shown, err := s.Records.LatestRuns(ctx, from, runsPerPage+1)
	if err != nil {
		return view{}, err
	}
	more := len(shown) > runsPerPage
	shown = shown[:min(len(shown), runsPerPage)]
	b := runsBody{Starts: s.readerOf(r).Starts && s.reachable(ctx), From: from}
	if from > 0 {
		b.Newer = fmt.Sprintf("/?from=%d", max(0, from-runsPerPage))
	}
	if more {
		b.Older = fmt.Sprintf("/?from=%d", from+runsPerPage)
	}
	if s.Live != nil {
		if shown, err = s.liveRuns(ctx, shown); err != nil {
			b.Doubt = format.Clip(err.Error(), format.MostOfMessage).Text
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
		row.Notes = append(row.Notes, note{Text: format.FirstLine(text)})
	}
	if sp, err := spec.Stored(run.Spec); err == nil { // one that was refused may be anything
		row.Planned = sp.WithDefaults().Training.Total(run.Splits[trace.Train].Count)
	}
	steps, err := s.history(ctx, run)
	if err != nil {
		return row, err
	}
	rewards := make([]float64, 0, len(steps))
	for _, step := range steps {
		if v, ok := step.Metrics["reward/mean"]; ok {
			rewards = append(rewards, v)
			row.Reward = &v
		}
		row.Step = step.Step
	}
	row.Spark = figure.Sparkline(rewards)
	if row.Promoted, row.Pinned, err = s.promoted(ctx, run.Name); err != nil {
		return row, err
	}
	state, doubt := s.state(ctx, run)
	if doubt != "" {
		row.Notes = append(row.Notes, note{Text: "Temporal does not say what it does: " + format.FirstLine(doubt)})
	}
	if state != nil {
		row.Doing = state.text()
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

// promoted returns the promoted version, or nil if there is none, and whether it is
// pinned.
func (s *Server) promoted(ctx context.Context, run string) (*int, bool, error) {
	p, err := s.Records.Promoted(ctx, run, model.DefaultPolicy)
	if errors.Is(err, trace.ErrNotFound) {
		return nil, false, nil
	}
	return &p.Version, p.Pinned(), err
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
	for i, text := range now.Waits {
		n := note{Text: format.FirstLine(text)}
		if i == len(now.Waits)-1 && acts {
			n.Links = []link{act("Stop now", string(actions.StopNow))}
		}
		out = append(out, n)
	}
	return out
}
