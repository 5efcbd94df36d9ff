package conversation

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// tree finds a recorded call by the dialog that its reply ends, which is how a request
// finds the call that it continues.
type tree struct {
	heads      map[digest][]*Call
	byToolCall map[string]*Call // by the ids of its tool calls
}

func newTree() tree { return tree{heads: map[digest][]*Call{}, byToolCall: map[string]*Call{}} }

// add adds a call that answers request. The prompt of a Completions call is no dialog,
// so nothing continues it as one.
func (t *tree) add(c *Call, request canonicalRequest) {
	for _, tc := range c.message.ToolCalls {
		t.byToolCall[tc.ID] = c
	}
	if c.api() == wire.Completions {
		return
	}
	c.head = request.last()
	var chain chainWriter
	end := chain.link(request.chain[len(request.turns)], formOf(c.message, map[string]string{}))
	t.heads[end] = append(t.heads[end], c)
}

// original returns the recorded reply that m repeats, found by the ids of its tool calls
// and as the policy reads it, or m itself. A client may write the JSON of the arguments differently, cut space off the
// text and leave the reasoning out. If it has changed anything else, m is no reply of the
// model: the policy has to read what the client says, because later messages depend on it.
func (t *tree) original(m dialog.Message, policy string) dialog.Message {
	if m.Role != dialog.Assistant || len(m.ToolCalls) == 0 {
		return m
	}
	if c, ok := t.byToolCall[m.ToolCalls[0].ID]; ok && restates(m, c.message) {
		return c.readBy(policy, m)
	}
	return m
}

// restates reports whether m says what the reply says, call for call.
func restates(m, reply dialog.Message) bool {
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
// one whose tool calls m names, then the one that the request names, then one of the
// request's policy, then one that continues the same call as the dialog, then the last. Of several samples for one
// request, the last is the one with the highest occurrence, in whichever order they were
// recorded. Reasoning that the client leaves out matches any.
func (t *tree) find(end digest, m dialog.Message, head *Call, r *Request) *Call {
	var best *Call
	thoughts := strings.TrimSpace(m.Reasoning)
	rank := func(c *Call) (n int) {
		switch {
		case len(m.ToolCalls) > 0 && t.byToolCall[m.ToolCalls[0].ID] == c:
			return 5
		case c == r.previous:
			return 4
		}
		if c.Policy == r.policy {
			n += 2
		}
		if c.head == head {
			n++
		}
		return n
	}
	for _, c := range t.heads[end] {
		if thoughts != "" && thoughts != strings.TrimSpace(c.message.Reasoning) {
			continue
		}
		if best == nil || rank(c) > rank(best) || rank(c) == rank(best) && (best.Key != c.Key || best.Occurrence < c.Occurrence) {
			best = c
		}
	}
	return best
}

// history has the tokens to sample after, and says how they continue the record.
type history struct {
	prompt []int32
	// parent is the Seq of the recorded call that the prompt begins with, or -1. It is a
	// call of the same policy: tokens of another one are context, made of its text.
	parent int
	// drifted reports whether the dialog continues a recorded call although a full
	// rendering of the dialog would not begin with that call's tokens; nil if that can't
	// happen.
	drifted func() bool
}

// historyOf lays out a request by the method that the attempt's terms set.
func (c *Conversation) historyOf(r *Request, form canonicalRequest) (history, error) {
	if r.API == wire.Completions {
		return c.layOutText(r)
	}
	read, err := c.reading(r, form)
	switch {
	case err != nil:
		return history{}, err
	case Relays(c.codec):
		h, err := c.extend(r, read, form)
		h.drifted = nil // the server renders the dialog, whatever tokens we keep of it
		return h, err
	case c.begun.Terms.History == record.HistoryTemplate:
		return c.render(r, read, form)
	}
	return c.extend(r, read, form)
}

// layOutText lays out a prompt that is no dialog.
func (c *Conversation) layOutText(r *Request) (history, error) {
	ids, err := r.textPrompt()
	if err != nil {
		return history{}, err
	}
	return history{prompt: ids, parent: c.longestPrefix(r.policy, ids)}, nil
}

// extend lays out a request as the exact tokens of the policy's recorded call that covers
// most of its turns, followed by the turns since then.
func (c *Conversation) extend(r *Request, read reading, form canonicalRequest) (history, error) {
	for n, head := range slices.Backward(form.nodes) {
		if head == nil || head.Policy != r.policy {
			continue
		}
		bridge, err := c.codec.Bridge(read.turns[n+1:], read.tools)
		if err != nil {
			return history{}, fmt.Errorf("continue call %s: %w", head.ID, err)
		}
		ids := make([]int32, 0, len(head.Prompt)+len(head.Completion)+1+len(bridge))
		ids = append(append(ids, head.Prompt...), head.Completion...)
		if stop := c.codec.Stop(); len(head.Completion) == 0 || !slices.Contains(stop, ids[len(ids)-1]) {
			ids = append(ids, stop[0]) // the reply was cut off
		}
		return history{append(ids, bridge...), head.Seq, func() bool {
			full, err := c.codec.Prompt(read.turns, read.tools)
			return err == nil && !head.begins(full)
		}}, nil
	}
	ids, err := c.codec.Prompt(read.turns, read.tools)
	return history{prompt: ids, parent: -1}, err
}

// render renders all turns from the beginning, as a server without a record would. The
// parent is the policy's longest recorded call whose tokens begin the result.
func (c *Conversation) render(r *Request, read reading, form canonicalRequest) (history, error) {
	ids, err := c.codec.Prompt(read.turns, read.tools)
	if err != nil {
		return history{}, err
	}
	h := history{prompt: ids, parent: -1}
	for _, head := range slices.Backward(form.nodes) {
		switch {
		case head == nil || head.Policy != r.policy:
		case head.begins(ids):
			h.parent = head.Seq
			return h, nil
		default:
			h.drifted = func() bool { return true }
		}
	}
	return h, nil
}

// CountPrompt returns the number of tokens in the prompt of a request.
func (c *Conversation) CountPrompt(ctx context.Context, r *Request) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ready(ctx); err != nil {
		return 0, err
	}
	if err := c.choosePolicy(r); err != nil {
		return 0, err
	}
	h, err := c.historyOf(r, c.canonicalize(r))
	return len(h.prompt), err
}

// resume completes a request that names the reply that it continues: it puts the dialog
// of that reply before the request's own messages, without the old instructions. It also
// resolves references to items of replies.
func (c *Conversation) resume(r *Request) error {
	if err := r.ResolveItems(c.replyMessage); err != nil {
		return err
	}
	if r.Previous == "" || r.resumed {
		return nil
	}
	call := c.callOfReply(r.Previous)
	if call == nil {
		f := wire.Invalid("previous_response_id", "the attempt has no reply %q", r.Previous)
		f.Code = "previous_response_not_found"
		return f
	}
	n := instructions(r.Request)
	r.Dialog = slices.Concat(r.Dialog[:n], call.dialog, r.Dialog[n:])
	r.resumed, r.previous = true, call
	return nil
}

// callOfReply returns the recorded call of Responses with that id; nil if there is none, or if
// it was deleted.
func (c *Conversation) callOfReply(id string) *Call {
	for _, call := range slices.Backward(c.calls) {
		if call.ID == id && call.api() == wire.Responses && !call.hidden && !call.redacted {
			return call
		}
	}
	return nil
}

// replyMessage returns the reply of Responses with that id, for requests that refer to its
// items.
func (c *Conversation) replyMessage(id string) (dialog.Message, bool) {
	call := c.callOfReply(id)
	if call == nil {
		return dialog.Message{}, false
	}
	return call.message, true
}

// input returns the request's dialog without the instructions.
func (r *Request) input() []dialog.Message {
	return slices.Clone(r.Dialog[instructions(r.Request):])
}

// instructions counts the messages of the dialog that are the request's instructions and
// not its input.
func instructions(r *wire.Request) int {
	var body struct {
		Instructions string `json:"instructions"`
	}
	// The request was decoded before; instructions that are not text count as none.
	_ = json.Unmarshal(r.Body, &body)
	if body.Instructions == "" || len(r.Dialog) == 0 || r.Dialog[0].Role != dialog.System || r.Dialog[0].Content != body.Instructions {
		return 0
	}
	return 1
}

// Recall returns what answer makes of the recorded Responses reply with that id. If there
// is no such reply, ok is false.
func (c *Conversation) Recall(ctx context.Context, id string, answer func(call *Call) []byte) (body []byte, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ready(ctx); err != nil {
		return nil, false, err
	}
	call := c.callOfReply(id)
	if call == nil {
		return nil, false, nil
	}
	return answer(call), true, nil
}

// Forget hides the reply from later requests that name it. Nothing is deleted from the
// journal, so a gateway that reads the attempt from it finds the reply again. Only the
// answer function of Recall may call Forget.
func (c *Call) Forget() { c.hidden = true }

// Body returns the body of the reply.
func (c *Call) Body() []byte { return c.Response }

// InputItems lists the input of the call's request.
func (c *Call) InputItems() []byte { return c.request.InputItems(c.stem) }
