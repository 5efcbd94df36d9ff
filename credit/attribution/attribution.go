// Package attribution finds out which agent, or which node of a graph, made a call. It
// reads records after the attempt, so a better rule can also be used on old runs.
//
// The best evidence decides, in this order:
//
//   - the name in the request's path, which is configured;
//   - a span of the agent's own instrumentation that names the reply;
//   - a name that the framework wrote into the dialog;
//   - a hand-off in the dialog;
//   - without any of these, the instructions and tools of the request, which at least
//     tell agents apart.
package attribution

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// Source is the evidence that decided a name.
type Source string

// The sources, the best first.
const (
	Path         Source = "path"         // /n/<agent> in the base URL
	Span         Source = "span"         // a span that is joined to the call
	Message      Source = "message"      // the name of an assistant message
	Handoff      Source = "handoff"      // the result of a transfer between agents
	Instructions Source = "instructions" // a digest of instructions and tools
)

// Name is the name of the agent that made a call.
type Name struct {
	Agent  string `json:"agent"`
	Source Source `json:"source"`
}

// Of returns the name of the agent that made each call of an attempt, in order. ignore is
// replay.ignore of the attempt's terms: text that matches these patterns is ignored when
// instructions are compared.
func Of(calls []record.Exchange, spans []record.Span, ignore []string) []Name {
	return OfRequests(calls, Requests(calls), spans, ignore)
}

// Requests returns the decoded request of each call, and nil for one that can't be read.
func Requests(calls []record.Exchange) []*wire.Request {
	out := make([]*wire.Request, len(calls))
	for i, c := range calls {
		out[i] = request(c)
	}
	return out
}

// OfRequests works like Of, for requests that were decoded already.
func OfRequests(calls []record.Exchange, requests []*wire.Request, spans []record.Span, ignore []string) []Name {
	bySpan, ignored := inSpans(Join(calls, requests, spans)), Compile(ignore)
	out := make([]Name, len(calls))
	for i, c := range calls {
		switch {
		case c.Agent != "":
			out[i] = Name{c.Agent, Path}
		case bySpan[c.ID] != "":
			out[i] = Name{bySpan[c.ID], Span}
		case requests[i] != nil:
			out[i] = ignored.inDialog(requests[i])
		}
	}
	// An agent's messages may have its name. Its first call then has no such message yet,
	// but the call that continues it has one.
	for i := len(calls) - 1; i >= 0; i-- {
		parent := slices.IndexFunc(calls, func(c record.Exchange) bool { return c.Seq == calls[i].Parent })
		if out[i].Source == Message && parent >= 0 && out[parent].Source == Instructions && ignored.sameAgent(requests[i], requests[parent]) {
			out[parent] = out[i]
		}
	}
	return out
}

func request(c record.Exchange) *wire.Request {
	api := wire.API(c.API)
	if api == "" {
		api = wire.Chat
	}
	r, err := wire.Decode(api, c.Request)
	if err != nil {
		return nil // a request of another release
	}
	return r
}

// inSpans returns the agent of each reply that has a span: the one that the span names,
// or the closest agent or step around the span.
func inSpans(spans []record.Span) map[string]string {
	all := byID(spans)
	out := map[string]string{}
	for _, s := range spans {
		if s.CallID != "" && out[s.CallID] == "" {
			out[s.CallID] = around(s, all)
		}
	}
	return out
}

type spanID struct{ trace, span string }

func byID(spans []record.Span) map[spanID]record.Span {
	all := map[spanID]record.Span{}
	for _, s := range spans {
		all[spanID{s.Trace, s.ID}] = s
	}
	return all
}

// around returns the agent that s or else the closest span around it names. If none does,
// it returns the name of the closest step. The agent comes first, because some
// instrumentations put a nameless step for each turn inside the span of an agent.
func around(s record.Span, all map[spanID]record.Span) string {
	step := ""
	for range all { // the sender chooses the ids, so parents may form a circle
		if s.Agent != "" {
			return s.Agent
		}
		if s.Kind == record.AgentSpan && step == "" {
			step = s.Name
		}
		parent, ok := all[spanID{s.Trace, s.Parent}]
		if !ok {
			break
		}
		s = parent
	}
	return step
}

// inDialog returns the name that the request alone shows.
func (p Patterns) inDialog(r *wire.Request) Name {
	for _, m := range slices.Backward(r.Dialog) {
		switch {
		case m.Role == dialog.Assistant && m.Name != "":
			return Name{m.Name, Message}
		case m.Role == dialog.ToolReply:
			if to := transfer(m.Content); to != "" {
				return Name{to, Handoff}
			}
		}
	}
	return Name{"agent-" + p.fingerprint(r)[:8], Instructions}
}

// transfer reads the result of a hand-off of the OpenAI Agents SDK: {"assistant": X}.
func transfer(result string) string {
	var to map[string]string
	if json.Unmarshal([]byte(result), &to) != nil || len(to) != 1 {
		return ""
	}
	return to["assistant"]
}

// Patterns match text that is ignored when agents or requests are compared.
type Patterns []*regexp.Regexp

// Compile compiles expressions and leaves out invalid ones. A checked spec has none of
// those.
func Compile(expressions []string) Patterns {
	var all Patterns
	for _, e := range expressions {
		if p, err := regexp.Compile(e); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// Without returns the text without the parts that the patterns match.
func (p Patterns) Without(text string) string {
	for _, r := range p {
		text = r.ReplaceAllLiteralString(text, "")
	}
	return text
}

// fingerprint returns the digest of the instructions, without ignored text, and of the
// names of the tools.
func (p Patterns) fingerprint(r *wire.Request) string {
	var b strings.Builder
	for _, m := range r.Dialog {
		if m.Role == dialog.System {
			b.WriteString(p.Without(m.Content) + "\x00")
		}
	}
	names := make([]string, len(r.Tools))
	for i, t := range r.Tools {
		names[i] = t.Name
	}
	slices.Sort(names)
	b.WriteString(strings.Join(names, "\x00"))
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:])
}

func (p Patterns) sameAgent(a, b *wire.Request) bool {
	return a != nil && b != nil && p.fingerprint(a) == p.fingerprint(b)
}

// recordedReply has the parts of a reply of any API that contain text or tool calls.
type recordedReply struct {
	Choices []struct {
		Text    string `json:"text"` // completions
		Message struct {
			Content      string            `json:"content"`
			Reasoning    string            `json:"reasoning_content"`
			ToolCalls    []dialog.ToolCall `json:"tool_calls"`
			FunctionCall *dialog.Function  `json:"function_call"`
		} `json:"message"`
	} `json:"choices"`
	Output  []replyPart `json:"output"`  // responses
	Content []replyPart `json:"content"` // messages
}

// replyPart is an item or a part of an item in the Responses API, or a block in the
// Messages API.
type replyPart struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Input     json.RawMessage `json:"input"`
	Content   []replyPart     `json:"content"`
	Summary   []replyPart     `json:"summary"`
}

// Replies returns the messages of a recorded reply: one, or one for each choice, and none
// if the reply can't be read.
func Replies(response []byte) []dialog.Message {
	var r recordedReply
	if json.Unmarshal(response, &r) != nil {
		return nil
	}
	var out []dialog.Message
	for _, c := range r.Choices {
		m := dialog.Message{Role: dialog.Assistant, Content: c.Text + c.Message.Content, Reasoning: c.Message.Reasoning, ToolCalls: c.Message.ToolCalls}
		if f := c.Message.FunctionCall; f != nil {
			m.ToolCalls = append(m.ToolCalls, dialog.ToolCall{Function: *f})
		}
		out = append(out, m)
	}
	if parts := append(r.Output, r.Content...); len(parts) > 0 {
		m := dialog.Message{Role: dialog.Assistant}
		for _, p := range parts {
			p.addTo(&m)
		}
		out = append(out, m)
	}
	return out
}

func (p replyPart) addTo(m *dialog.Message) {
	switch p.Type {
	case "message":
		m.Content += p.texts()
	case "text", "output_text":
		m.Content += p.Text
	case "thinking":
		m.Reasoning += p.Thinking
	case "reasoning":
		for _, s := range p.Summary {
			m.Reasoning += s.Text
		}
		m.Reasoning += p.texts()
	case "function_call":
		m.ToolCalls = append(m.ToolCalls, dialog.ToolCall{ID: p.CallID, Function: dialog.Function{Name: p.Name, Arguments: p.Arguments}})
	case "tool_use":
		m.ToolCalls = append(m.ToolCalls, dialog.ToolCall{ID: p.ID, Function: dialog.Function{Name: p.Name, Arguments: string(p.Input)}})
	}
}

func (p replyPart) texts() string {
	var b strings.Builder
	for _, c := range p.Content {
		b.WriteString(c.Text)
	}
	return b.String()
}
