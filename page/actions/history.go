package actions

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

// mostActions is how many actions of a run are listed, the newest first.
const mostActions = 200

// historyBody is the list of the actions on a run.
type historyBody struct {
	Actions []row
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
	all, err := p.Records.Actions(ctx, run.Name, mostActions)
	if err != nil {
		p.Fail(w, r, http.StatusInternalServerError, err)
		return
	}
	b := historyBody{Full: len(all) == mostActions, Most: mostActions}
	for _, a := range all {
		b.Actions = append(b.Actions, rowOf(a))
	}
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
