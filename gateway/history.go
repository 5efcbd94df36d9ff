package gateway

import (
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// history is the tokens to sample after, and how they come from what was recorded.
type history struct {
	prompt []int32
	// parent is the Seq of the recorded call that the prompt begins with, or -1.
	parent int
	// drifted reports whether the dialog goes on from a recorded call, but a full
	// rendering of it would not begin with that call's tokens.
	drifted func() bool
}

func never() bool { return false }

// history lays out a request as the attempt's terms want it. The caller holds mu.
func (a *attempt) history(q *question, form canonical) (history, error) {
	switch {
	case q.order.request.API == wire.Completions:
		return a.bare(q.order)
	case relays(a.codec):
		h, err := a.appended(q.order, form)
		h.drifted = never // the server renders the dialog, whatever we keep of it
		return h, err
	case a.begun.Terms.History == trace.HistoryTemplate:
		return a.rendered(q.order, form)
	}
	return a.appended(q.order, form)
}

// bare is a prompt that is no dialog.
func (a *attempt) bare(o *order) (history, error) {
	ids, err := o.bare()
	if err != nil {
		return history{}, err
	}
	return history{ids, a.extended(ids), never}, nil
}

// bare is the prompt of a Completions request.
func (o *order) bare() ([]int32, error) {
	ids := slices.Clone(o.request.Tokens)
	if ids == nil {
		ids = o.codec.Encode(o.request.Text)
	}
	if len(ids) == 0 {
		return nil, wire.Invalid("prompt", "prompt is empty")
	}
	return ids, nil
}

// appended continues the call with which most of the turns were laid out already,
// by its exact tokens and what is new.
func (a *attempt) appended(o *order, form canonical) (history, error) {
	for n, head := range slices.Backward(form.nodes) {
		if head == nil {
			continue
		}
		bridge, err := a.codec.Bridge(form.turns[n+1:], o.request.Tools)
		if err != nil {
			return history{}, fmt.Errorf("continue call %s: %w", head.id, err)
		}
		ids := head.tokens()
		if stop := a.codec.Stop(); len(head.completion) == 0 || !slices.Contains(stop, ids[len(ids)-1]) {
			ids = append(ids, stop[0]) // the reply was cut off
		}
		return history{append(ids, bridge...), head.seq, func() bool {
			full, err := a.codec.Prompt(form.turns, o.request.Tools)
			return err == nil && !head.begins(full)
		}}, nil
	}
	ids, err := a.codec.Prompt(form.turns, o.request.Tools)
	return history{ids, -1, never}, err
}

// rendered lays all turns out anew, as a server without a record would. It
// continues the longest recorded call whose tokens come out of that again.
func (a *attempt) rendered(o *order, form canonical) (history, error) {
	ids, err := a.codec.Prompt(form.turns, o.request.Tools)
	if err != nil {
		return history{}, err
	}
	h := history{ids, -1, never}
	for _, head := range slices.Backward(form.nodes) {
		switch {
		case head == nil:
		case head.begins(ids):
			h.parent = head.seq
			return h, nil
		default:
			h.drifted = func() bool { return true }
		}
	}
	return h, nil
}
