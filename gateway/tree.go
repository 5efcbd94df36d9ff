package gateway

import (
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// tree is recorded calls by the dialogs that they end. Each is found again in a
// request that goes on from it.
type tree struct {
	heads  map[digest][]*call
	issued map[string]*call // by the ids of its tool calls
}

func newTree() tree { return tree{heads: map[digest][]*call{}, issued: map[string]*call{}} }

// grow adds a call, asked by request. The prompt of a Completions call is no dialog,
// so nothing continues it as one.
func (t *tree) grow(c *call, request canonical) {
	for _, tc := range c.message.ToolCalls {
		t.issued[tc.ID] = c
	}
	if c.api == wire.Completions {
		return
	}
	c.before = request.last()
	end := link(request.chain[len(request.turns)], formOf(c.message, map[string]string{}))
	t.heads[end] = append(t.heads[end], c)
}

// asIssued returns the recorded reply that m repeats by the ids of its tool calls,
// or m itself.
func (t *tree) asIssued(m dialog.Message) dialog.Message {
	if m.Role != dialog.Assistant || len(m.ToolCalls) == 0 {
		return m
	}
	c, ok := t.issued[m.ToolCalls[0].ID]
	if !ok || len(c.message.ToolCalls) != len(m.ToolCalls) {
		return m
	}
	for k, tc := range m.ToolCalls {
		if tc.ID != c.message.ToolCalls[k].ID {
			return m
		}
	}
	return c.message
}

// find returns the call that said m at the end of a dialog, nil if there is none.
// Of several that said the same it is the one whose tool calls are named, else the
// one that the request names, else one that continues the same call as the dialog
// does, else the last: of equal samples for one request that is the last sampled, in
// whichever order calls in flight together were recorded. Thoughts that the client
// leaves out match any.
func (t *tree) find(end digest, m dialog.Message, before, named *call) *call {
	var best *call
	thoughts := strings.TrimSpace(m.Reasoning)
	rank := func(c *call) int {
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
		if thoughts != "" && thoughts != strings.TrimSpace(c.message.Reasoning) {
			continue
		}
		if best == nil || rank(c) > rank(best) || rank(c) == rank(best) && (best.key != c.key || best.occurrence < c.occurrence) {
			best = c
		}
	}
	return best
}

// tokens is the prompt and the completion of a call.
func (c *call) tokens() []int32 { return slices.Concat(c.prompt, c.completion) }

// begins reports whether ids begin with the prompt and the completion of the call.
func (c *call) begins(ids []int32) bool {
	n, all := len(c.prompt), len(c.prompt)+len(c.completion)
	return all <= len(ids) && slices.Equal(c.completion, ids[n:all]) && slices.Equal(c.prompt, ids[:n])
}
