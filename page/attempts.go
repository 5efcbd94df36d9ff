package page

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/page/verdict"
	"github.com/fulgurite/fulgurite/record"
)

// pickedRow is an attempt in the list of those that a reader asked for.
type pickedRow struct {
	record.Trial
	Text, Path string
	State      string // how it ended, or that it runs
	Cause      string // why its agent failed
}

// pick lists the attempts that ended in one way, if the reader asks for one, or all.
func (s *Server) pick(r *http.Request, b *stepBody, trials []record.Trial, run record.Run) (err error) {
	query := r.URL.Query()
	outcome, failure, cutOff := query.Get("outcome"), query.Get("failure"), query.Get("cut_off") != ""
	every := query.Has("attempts")
	switch {
	case cutOff:
		b.PickedBy = "a reply was cut off at a limit of tokens"
	case failure != "":
		b.PickedBy = verdict.Failure(format.FirstLine(failure))
	case outcome != "":
		b.PickedBy = format.FirstLine(outcome)
	case every:
		b.PickedBy = "all"
	default:
		return nil
	}
	states := record.StatesOf(trials, run)
	var rows []pickedRow
	for i, t := range trials {
		state := words(states[i])
		picked := every || state == outcome
		switch {
		case cutOff:
			picked = t.CutOff > 0
		case failure != "":
			picked = failureOf(t) == failure
		}
		if picked {
			rows = append(rows, pickedRow{Trial: t, State: state, Text: fmt.Sprintf("%s, sample %d, attempt %d", format.FirstLine(t.TaskID), t.Sample, t.Attempt), Path: attemptPath(t.Address)})
		}
	}
	b.Picked, b.PickedSearch = listing.Narrow(r, rows, maxPicked, attemptOrder())
	for i := range b.Picked {
		if b.Picked[i].Cause, err = s.cause(r.Context(), b.Picked[i].Trial); err != nil {
			return err
		}
	}
	return nil
}

// attemptOrder says how attempts can be searched and sorted.
func attemptOrder() listing.Order[pickedRow] {
	return listing.Order[pickedRow]{
		Prefix: "attempt_", Anchor: "#picked",
		Text: func(a pickedRow) string { return a.Text + " " + a.State + " " + a.Failure },
		Sorts: []listing.Sort[pickedRow]{
			{Text: "task and sample"},
			{Name: "low", Text: "reward, lowest first", Compare: func(a, b pickedRow) int { return compareKnown(a.Reward, b.Reward, 1) }},
			{Name: "high", Text: "reward, highest first", Compare: func(a, b pickedRow) int { return compareKnown(a.Reward, b.Reward, -1) }},
			{Name: "tokens", Text: "tokens, most first", Compare: func(a, b pickedRow) int { return cmp.Compare(b.Tokens, a.Tokens) }},
			{Name: "calls", Text: "calls, most first", Compare: func(a, b pickedRow) int { return cmp.Compare(b.Calls, a.Calls) }},
		},
	}
}

// compareKnown compares two values in a direction, and puts what is not known behind what is.
func compareKnown(a, b *float64, direction int) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return direction * cmp.Compare(*a, *b)
}

// groupOrder says how the groups of a step, or the tasks of an evaluation, can be searched and
// sorted.
func groupOrder(evaluated bool) listing.Order[groupRow] {
	first := "standard deviation of rewards"
	if evaluated {
		first = "hardest first"
	}
	mean := func(g groupRow) *float64 {
		if g.Rewards.Count == 0 {
			return nil
		}
		return &g.Rewards.Mean
	}
	return listing.Order[groupRow]{
		Text: func(g groupRow) string { return g.TaskID + " " + g.Reason },
		Sorts: []listing.Sort[groupRow]{
			{Text: first},
			{Name: "low", Text: "mean reward, lowest first", Compare: func(a, b groupRow) int { return compareKnown(mean(a), mean(b), 1) }},
			{Name: "high", Text: "mean reward, highest first", Compare: func(a, b groupRow) int { return compareKnown(mean(a), mean(b), -1) }},
			{Name: "name", Text: "name", Compare: func(a, b groupRow) int { return cmp.Compare(a.TaskID, b.TaskID) }},
			{Name: "tokens", Text: "tokens, most first", Compare: func(a, b groupRow) int { return cmp.Compare(b.Tokens, a.Tokens) }},
			{Name: "attempts", Text: "attempts, most first", Compare: func(a, b groupRow) int { return cmp.Compare(b.Attempts, a.Attempts) }},
		},
	}
}
