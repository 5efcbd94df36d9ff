package conversation

import (
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// tree is recorded calls by the dialogs that they end. Each is found again in a
// request that goes on from it.
type tree struct {
	heads  map[digest][]*Call
	issued map[string]*Call // by the ids of its tool calls
}

func newTree() tree { return tree{heads: map[digest][]*Call{}, issued: map[string]*Call{}} }

// add adds a call that answers request. The prompt of a Completions call is no dialog,
// so nothing continues it as one.
func (t *tree) add(c *Call, request Canonical) {
	for _, tc := range c.Message.ToolCalls {
		t.issued[tc.ID] = c
	}
	if c.api() == wire.Completions {
		return
	}
	c.before = request.last()
	var chain chainWriter
	end := chain.link(request.chain[len(request.turns)], formOf(c.Message, map[string]string{}))
	t.heads[end] = append(t.heads[end], c)
}

// asIssued returns the recorded reply that m repeats by the ids of its tool calls,
// or m itself.
func (t *tree) asIssued(m dialog.Message) dialog.Message {
	if m.Role != dialog.Assistant || len(m.ToolCalls) == 0 {
		return m
	}
	c, ok := t.issued[m.ToolCalls[0].ID]
	if !ok || len(c.Message.ToolCalls) != len(m.ToolCalls) {
		return m
	}
	for k, tc := range m.ToolCalls {
		if tc.ID != c.Message.ToolCalls[k].ID {
			return m
		}
	}
	return c.Message
}

// find returns the call that said m at the end of a dialog, nil if there is none.
// If several said the same, it is the one whose tool calls are named, else the one that
// the request names, else one that continues the same call as the dialog does, else the
// last. The last of equal samples for one request is the last sampled, in whichever
// order calls in flight together were recorded. Thoughts that the client leaves out
// match any.
func (t *tree) find(end digest, m dialog.Message, before, named *Call) *Call {
	var best *Call
	thoughts := strings.TrimSpace(m.Reasoning)
	rank := func(c *Call) int {
		switch {
		case len(m.ToolCalls) > 0 && t.issued[m.ToolCalls[0].ID] == c:
			return 3
		case c == named:
			return 2
		case c.before == before:
			return 1
		}
		return 0
	}
	for _, c := range t.heads[end] {
		if thoughts != "" && thoughts != strings.TrimSpace(c.Message.Reasoning) {
			continue
		}
		if best == nil || rank(c) > rank(best) || rank(c) == rank(best) && (best.Key != c.Key || best.Occurrence < c.Occurrence) {
			best = c
		}
	}
	return best
}
