package atif

import (
	"strings"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// turn is a model call with what its request says for the first time.
type turn struct {
	trace.Exchange
	request *wire.Request // nil if it can't be read
	// fresh are the messages after those of the call before and its reply.
	fresh []dialog.Message
	// text is the new part of a prompt that is no dialog.
	text  string
	reply dialog.Message
}

// conversation is a list of calls of an agent in which each continues the one before.
type conversation struct {
	agent attribution.Name
	turns []turn
}

// conversations divides the calls of an attempt, in order of their first calls. A call
// belongs to the conversation of its agent whose last call it continues. Of several calls
// that continue the same one, the first belongs to its conversation, and each of the
// others begins another.
func conversations(history []trace.Exchange, requests []*wire.Request, names []attribution.Name) []conversation {
	var all []conversation
	for i, c := range history {
		t := turn{Exchange: c, request: requests[i]}
		if replies := attribution.Replies(c.Response); len(replies) > 0 {
			t.reply = replies[0]
		}
		if !join(all, names[i], t) {
			if t.request != nil {
				t.fresh, t.text = t.request.Dialog, t.request.Text
			}
			all = append(all, conversation{names[i], []turn{t}})
		}
	}
	return all
}

// join adds a call to the newest conversation that it continues, if there is one.
func join(all []conversation, agent attribution.Name, t turn) bool {
	for i := len(all) - 1; i >= 0; i-- {
		c := &all[i]
		// An agent that is known by its instructions and tools alone may offer other tools.
		unnamed := c.agent.Source == attribution.Instructions && agent.Source == attribution.Instructions
		if c.agent.Agent != agent.Agent && !unnamed || !t.continues(c.turns[len(c.turns)-1]) {
			continue
		}
		c.turns = append(c.turns, t)
		return true
	}
	return false
}

// continues reports whether the request of a call consists of that of another call, the
// reply to it, and more. It then sets what is new.
func (t *turn) continues(before turn) bool {
	r, b := t.request, before.request
	switch {
	case r == nil || b == nil || r.API != b.API:
		return false
	case r.Previous != "":
		_, rest := dialog.Instructions(r.Dialog) // each request gives them again
		t.fresh = rest
		return r.Previous == before.ID
	case len(r.Dialog) == 0:
		rest, ok := strings.CutPrefix(r.Text, b.Text+before.reply.Content)
		t.text = rest
		return ok && b.Text != ""
	}
	shared := dialog.Shared(b.Dialog, r.Dialog)
	if shared <= len(b.Dialog) || t.Parent != before.Seq && !same(r.Dialog[shared-1], before.reply) {
		return false
	}
	t.fresh = r.Dialog[shared:]
	return true
}

// same reports whether a message of a request repeats a reply.
func same(m, reply dialog.Message) bool {
	if strings.TrimSpace(m.Content) != strings.TrimSpace(reply.Content) || len(m.ToolCalls) != len(reply.ToolCalls) {
		return false
	}
	for i, c := range m.ToolCalls {
		if c.Function.Name != reply.ToolCalls[i].Function.Name {
			return false
		}
	}
	return true
}
