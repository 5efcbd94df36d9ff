package page

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	// maxCutOff is how many attempts with replies that were cut off are read, and
	// cutOffPerPage how many a page shows.
	maxCutOff     = 10_000
	cutOffPerPage = 100
)

// cutOffBody is the list of a run's attempts with replies that a limit of tokens ended.
type cutOffBody struct {
	Attempts []cutOffRow
	Search   *listing.Form
	Full     bool // there may be more than were read
	Most     int
}

// cutOffRow is an attempt in the list.
type cutOffRow struct {
	record.Trial
	Text, Path     string
	Step, StepPath string
	State          string
}

// cutOff lists the attempts of a run with replies that were cut off.
func (s *Server) cutOff(r *http.Request) (view, error) {
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	trials, err := s.Records.TrialsCutOff(r.Context(), run.Name, maxCutOff)
	if err != nil {
		return view{}, err
	}
	b := cutOffBody{Full: len(trials) == maxCutOff, Most: maxCutOff}
	rows := make([]cutOffRow, len(trials))
	for i, t := range trials {
		state := "no result"
		if t.Outcome != trace.Running {
			state = words(record.AttemptState(t.Outcome))
		}
		rows[i] = cutOffRow{
			Trial: t, Text: fmt.Sprintf("%s, sample %d, attempt %d", format.FirstLine(t.TaskID), t.Sample, t.Attempt), Path: attemptPath(t.Address),
			Step: stepName(t.Kind, t.Step), StepPath: stepPath(run.Name, t.Kind, t.Step) + "?cut_off=1#picked", State: state,
		}
	}
	b.Attempts, b.Search = listing.Narrow(r, rows, cutOffPerPage, cutOffOrder())
	v := runView("cut_off", run, "Steps", link{Text: "Steps", Path: runPath(run.Name) + "/steps"}, link{Text: "Replies that were cut off"})
	v.Body = b
	return v, nil
}

// cutOffOrder says how the attempts can be searched, filtered and sorted.
func cutOffOrder() listing.Order[cutOffRow] {
	of := func(kinds ...trace.Kind) func(cutOffRow) bool {
		return func(row cutOffRow) bool {
			for _, kind := range kinds {
				if row.Kind == kind {
					return true
				}
			}
			return false
		}
	}
	return listing.Order[cutOffRow]{
		Text: func(a cutOffRow) string { return a.Text + " " + a.Step + " " + a.State },
		Filters: []listing.Filter[cutOffRow]{
			{Text: "all"},
			{Name: "training", Text: "training", Keep: of(trace.Train, trace.Reserve)},
			{Name: "evaluations", Text: "evaluations", Keep: of(trace.Gate, trace.Test)},
		},
		Sorts: []listing.Sort[cutOffRow]{
			{Text: "kind and step"},
			{Name: "newest", Text: "newest", Compare: func(a, b cutOffRow) int { return b.Begun.Compare(a.Begun) }},
			{Name: "most", Text: "cut off, most first", Compare: func(a, b cutOffRow) int { return cmp.Compare(b.CutOff, a.CutOff) }},
			{Name: "low", Text: "reward, lowest first", Compare: func(a, b cutOffRow) int { return compareKnown(a.Reward, b.Reward, 1) }},
			{Name: "high", Text: "reward, highest first", Compare: func(a, b cutOffRow) int { return compareKnown(a.Reward, b.Reward, -1) }},
			{Name: "tokens", Text: "tokens, most first", Compare: func(a, b cutOffRow) int { return cmp.Compare(b.Tokens, a.Tokens) }},
		},
	}
}
