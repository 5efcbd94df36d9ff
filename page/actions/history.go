package actions

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	// maxActions is how many actions of a run are read, the newest first.
	maxActions = 10_000
	// actionsPerPage is how many a list has.
	actionsPerPage = 100
)

// historyBody is the list of the actions on a run.
type historyBody struct {
	Actions []row
	Search  *listing.Form
	// Answer is the action that was just done.
	Answer *row
	Full   bool // there may be earlier ones
	Most   int
}

// row is an action in the list.
type row struct {
	record.Action
	What string
}

func (p *Pages) history(w http.ResponseWriter, r *http.Request) {
	run, ok := p.run(w, r)
	if !ok {
		return
	}
	ctx := r.Context()
	all, err := p.Records.Actions(ctx, run.Name, maxActions)
	if err != nil {
		p.Fail(w, r, http.StatusInternalServerError, err)
		return
	}
	b := historyBody{Full: len(all) == maxActions, Most: maxActions}
	rows := make([]row, len(all))
	for i, a := range all {
		rows[i] = rowOf(a)
	}
	b.Actions, b.Search = listing.Narrow(r, rows, actionsPerPage, order())
	if id := r.URL.Query().Get("answer"); id != "" {
		a, err := p.Records.Action(ctx, id)
		switch {
		case err == nil && a.Run == run.Name:
			one := rowOf(a)
			b.Answer = &one
		case err != nil && !errors.Is(err, trace.ErrNotFound):
			p.Fail(w, r, http.StatusInternalServerError, err)
			return
		}
	}
	p.show(w, r, Page{Title: "Actions", Run: run, Here: true}, "history", b)
}

// order says how actions can be searched, filtered and sorted.
func order() listing.Order[row] {
	ended := func(as record.ActionOutcome) func(row) bool {
		return func(a row) bool { return a.Outcome == as }
	}
	return listing.Order[row]{
		Text: func(a row) string { return strings.Join([]string{a.What, a.By, a.Reason, a.Result.Message}, " ") },
		Filters: []listing.Filter[row]{
			{Text: "all"},
			{Name: "done", Text: "done", Keep: ended(record.ActionDone)},
			{Name: "refused", Text: "refused", Keep: ended(record.ActionRefused)},
			{Name: "asked", Text: "no answer on record", Keep: ended(record.ActionAsked)},
		},
		Sorts: []listing.Sort[row]{
			{Text: "newest"},
			{Name: "oldest", Text: "oldest", Compare: func(a, b row) int { return a.At.Compare(b.At) }},
			{Name: "what", Text: "what", Compare: func(a, b row) int { return cmp.Compare(a.What, b.What) }},
			{Name: "by", Text: "by whom", Compare: func(a, b row) int { return cmp.Compare(a.By, b.By) }},
		},
	}
}

// rowOf describes an action in words.
func rowOf(a record.Action) row {
	what := "Start"
	name := a.Name
	if a.Input.Now {
		name = StopNow
	}
	if k, ok := kindOf(name); ok {
		what = k.Verb
	}
	if a.Input.Version != nil {
		what += " version " + strconv.Itoa(*a.Input.Version)
	}
	if a.Input.Format != "" {
		what += " as " + a.Input.Format
	}
	keys := make([]string, 0, len(a.Input.Values))
	for key, v := range a.Input.Values {
		keys = append(keys, key+"="+strconv.FormatFloat(v, 'f', -1, 64))
	}
	slices.Sort(keys)
	if len(keys) > 0 {
		what += " " + strings.Join(keys, ", ")
	}
	return row{a, what}
}
