package conversation

import (
	"context"
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// History has the tokens to sample after, and says how they continue the record.
type History struct {
	Prompt []int32
	// Parent is the Seq of the recorded call that the prompt begins with, or -1.
	Parent int
	// Drifted reports whether the dialog continues a recorded call although a full
	// rendering of the dialog would not begin with that call's tokens; nil if that can't
	// happen.
	Drifted func() bool
}

// History lays out a request by the method that the attempt's terms set. The caller holds
// the lock.
func (a *Attempt) History(r *Request, form Canonical) (History, error) {
	switch {
	case r.API == wire.Completions:
		return a.bare(r)
	case Relays(a.codec):
		h, err := a.appended(r, form)
		h.Drifted = nil // the server renders the dialog, whatever tokens we keep of it
		return h, err
	case a.begun.Terms.History == trace.HistoryTemplate:
		return a.rendered(r, form)
	}
	return a.appended(r, form)
}

// bare lays out a prompt that is no dialog.
func (a *Attempt) bare(r *Request) (History, error) {
	ids, err := r.bare()
	if err != nil {
		return History{}, err
	}
	return History{Prompt: ids, Parent: a.longestPrefix(ids)}, nil
}

// appended lays out a request as the exact tokens of the recorded call that covers most
// of its turns, followed by the new turns.
func (a *Attempt) appended(r *Request, form Canonical) (History, error) {
	for n, head := range slices.Backward(form.nodes) {
		if head == nil {
			continue
		}
		bridge, err := a.codec.Bridge(form.turns[n+1:], r.Tools)
		if err != nil {
			return History{}, fmt.Errorf("continue call %s: %w", head.ID, err)
		}
		ids := make([]int32, 0, len(head.Prompt)+len(head.Completion)+1+len(bridge))
		ids = append(append(ids, head.Prompt...), head.Completion...)
		if stop := a.codec.Stop(); len(head.Completion) == 0 || !slices.Contains(stop, ids[len(ids)-1]) {
			ids = append(ids, stop[0]) // the reply was cut off
		}
		return History{append(ids, bridge...), head.Seq, func() bool {
			full, err := a.codec.Prompt(form.turns, r.Tools)
			return err == nil && !head.begins(full)
		}}, nil
	}
	ids, err := a.codec.Prompt(form.turns, r.Tools)
	return History{Prompt: ids, Parent: -1}, err
}

// rendered renders all turns from the beginning, as a server without a record would. The
// parent is the longest recorded call whose tokens begin the result.
func (a *Attempt) rendered(r *Request, form Canonical) (History, error) {
	ids, err := a.codec.Prompt(form.turns, r.Tools)
	if err != nil {
		return History{}, err
	}
	h := History{Prompt: ids, Parent: -1}
	for _, head := range slices.Backward(form.nodes) {
		switch {
		case head == nil:
		case head.begins(ids):
			h.Parent = head.Seq
			return h, nil
		default:
			h.Drifted = func() bool { return true }
		}
	}
	return h, nil
}

// CountPrompt returns the number of tokens in the prompt of a request.
func (a *Attempt) CountPrompt(ctx context.Context, r *Request) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.Ready(ctx); err != nil {
		return 0, err
	}
	h, err := a.History(r, a.Canonicalize(r))
	return len(h.Prompt), err
}
