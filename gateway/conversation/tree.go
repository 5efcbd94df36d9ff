package conversation

import (
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// tree finds a recorded call by the dialog that its reply ends, which is how a request
// finds the call that it continues.
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

// asIssued returns the recorded reply that m repeats, found by the ids of its tool calls,
// or m itself. A client may write the JSON of the arguments differently, cut space off the
// text and leave the reasoning out. If it has changed anything else, m is no reply of the
// model: the policy has to read what the client says, since later messages depend on it.
func (t *tree) asIssued(m dialog.Message) dialog.Message {
	if m.Role != dialog.Assistant || len(m.ToolCalls) == 0 {
		return m
	}
	if c, ok := t.issued[m.ToolCalls[0].ID]; ok && repeats(m, c.Message) {
		return c.Message
	}
	return m
}

// repeats reports whether m says what the reply says, call for call.
func repeats(m, reply dialog.Message) bool {
	thoughts := strings.TrimSpace(m.Reasoning)
	if strings.TrimSpace(m.Content) != strings.TrimSpace(reply.Content) ||
		thoughts != "" && thoughts != strings.TrimSpace(reply.Reasoning) {
		return false
	}
	return slices.EqualFunc(m.ToolCalls, reply.ToolCalls, func(a, b dialog.ToolCall) bool {
		return a.ID == b.ID && a.Function.Name == b.Function.Name && sameJSON(a.Function.Arguments, b.Function.Arguments)
	})
}

// find returns the recorded call whose reply is m and whose dialog, with the reply, has
// the digest end. It returns nil if there is none. If there are several, find prefers the
// one whose tool calls m names, then the one that the request names, then one that
// continues the same call as the dialog, then the last. Of several samples for one
// request, the last is the one with the highest occurrence, in whichever order they were
// recorded. Reasoning that the client leaves out matches any.
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
