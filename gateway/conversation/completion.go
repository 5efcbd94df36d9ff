package conversation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// Parsed is a decoded completion.
type Parsed struct {
	Message dialog.Message
	Stopped string // the stop text that ended it, which is not part of the message
	Problem string // why text that looks like a tool call is not one
	Cut     bool   // the tool calls are whole, but one after them was cut off
}

// Parse decodes a completion; the ids of its tool calls share the stem. If the request
// wants at most one call, Parse drops the calls after the first. They stay in the tokens:
// the policy sampled them, and continues from there.
func (r *Request) Parse(completion []int32, stem string) Parsed {
	var p Parsed
	if r.BareText() {
		p.Message = dialog.Message{Role: dialog.Assistant, Content: r.Codec.Text(completion[:r.Length(completion)])}
	} else {
		p.Message, p.Problem = r.Codec.Parse(completion, r.callable, toolCallIDs(stem))
		if p.Problem != "" && r.Form != nil && r.Form.Call {
			p = r.withWholeCalls(p, completion, stem)
		}
	}
	if r.Serial && len(p.Message.ToolCalls) > 1 {
		p.Message.ToolCalls = p.Message.ToolCalls[:1]
	}
	if at, stop := FirstOf(p.Message.Content, r.Stops()); at >= 0 {
		p.Message.Content, p.Message.ToolCalls, p.Stopped = p.Message.Content[:at], nil, stop
	}
	return p
}

// withWholeCalls returns the result for a reply that had to call a tool and was cut off
// in one of several calls. The calls before that one are whole, and the agent need not
// lose them.
func (r *Request) withWholeCalls(p Parsed, completion []int32, stem string) Parsed {
	cutter, ok := r.Codec.(dialog.Cutter)
	if !ok {
		return p
	}
	whole := cutter.WholeCalls(completion)
	if whole == nil {
		return p
	}
	message, problem := r.Codec.Parse(whole, r.callable, toolCallIDs(stem))
	if problem != "" {
		return p
	}
	return Parsed{Message: message, Problem: fmt.Sprintf("tool call %d cut off before its end", len(message.ToolCalls)), Cut: !r.Serial}
}

// BareText reports whether all tokens of a reply are text, without structure.
func (r *Request) BareText() bool { return r.API == wire.Completions && !r.Relayed() }

// Length returns the number of tokens before the one that ended the completion.
func (r *Request) Length(completion []int32) int {
	stop := r.Codec.Stop()
	if n := slices.IndexFunc(completion, func(t int32) bool { return slices.Contains(stop, t) }); n >= 0 {
		return n
	}
	return len(completion)
}

// Partial returns the text of an incomplete completion, as far as it is certain.
func (r *Request) Partial(completion []int32) string { return r.Codec.Partial(completion, r.callable) }

// Reasoning returns the reasoning in a completion before its text.
func (r *Request) Reasoning(completion []int32) string {
	if r.API == wire.Completions {
		return ""
	}
	m, _ := r.Codec.Parse(completion, r.callable, toolCallIDs(""))
	return m.Reasoning
}

// FirstOf returns the first stop text in text and where it begins. If several begin
// there, it returns the longest. If there is none, at is -1.
func FirstOf(text string, stops []string) (at int, stop string) {
	at = -1
	for _, s := range stops {
		n := strings.Index(text, s)
		if n >= 0 && (at < 0 || n < at || n == at && len(s) > len(stop)) {
			at, stop = n, s
		}
	}
	return at, stop
}
