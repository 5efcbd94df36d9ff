// Package attribution finds out which agent, or which node of a graph, made a call:
// from what was recorded, after the fact, so that a better rule can be asked about
// old runs.
//
// Evidence differs in worth, and the best there is decides: the name in the request's
// path, which somebody configured; a span that the agent's own instrumentation sent
// and that names the reply; a name that the framework wrote into the dialog; a
// hand-off that the dialog tells of; and, without any of these, the instructions and
// tools of the request, which at least tell agents apart.
package attribution

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// Source is the evidence that a name comes from.
type Source string

// The sources, the best first.
const (
	Path         Source = "path"         // /n/<agent> in the base URL
	Span         Source = "span"         // a span that is joined to the call
	Message      Source = "message"      // the name of an assistant message
	Handoff      Source = "handoff"      // the result of a transfer between agents
	Instructions Source = "instructions" // a digest of instructions and tools
)

// Name is who made a call.
type Name struct {
	Agent  string `json:"agent"`
	Source Source `json:"source"`
}

// Of names the caller of each call of an attempt, in order. What the patterns of
// ignore match (replay.ignore of its terms) tells no instructions apart.
func Of(calls []trace.Exchange, spans []trace.Span, ignore []string) []Name {
	return OfRequests(calls, Requests(calls), spans, ignore)
}

// Requests reads what each call asked for, nil where it can't be read.
func Requests(calls []trace.Exchange) []*wire.Request {
	out := make([]*wire.Request, len(calls))
	for i, c := range calls {
		out[i] = request(c)
	}
	return out
}

// OfRequests is Of for who has read the requests already.
func OfRequests(calls []trace.Exchange, requests []*wire.Request, spans []trace.Span, ignore []string) []Name {
	told, ignored := inSpans(Join(calls, requests, spans)), compile(ignore)
	out := make([]Name, len(calls))
	for i, c := range calls {
		switch {
		case c.Agent != "":
			out[i] = Name{c.Agent, Path}
		case told[c.ID] != "":
			out[i] = Name{told[c.ID], Span}
		case requests[i] != nil:
			out[i] = ignored.inDialog(requests[i])
		}
	}
	// The first call of an agent that names its messages has none of them yet; the one
	// that continues it does.
	for i := len(calls) - 1; i >= 0; i-- {
		parent := slices.IndexFunc(calls, func(c trace.Exchange) bool { return c.Seq == calls[i].Parent })
		if out[i].Source == Message && parent >= 0 && out[parent].Source == Instructions && ignored.sameAgent(requests[i], requests[parent]) {
			out[parent] = out[i]
		}
	}
	return out
}

func request(c trace.Exchange) *wire.Request {
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

// inSpans gives the agent of each reply that spans tell of: what the span says, or
// the name of the closest agent or step around it.
func inSpans(spans []trace.Span) map[string]string {
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

func byID(spans []trace.Span) map[spanID]trace.Span {
	all := map[spanID]trace.Span{}
	for _, s := range spans {
		all[spanID{s.Trace, s.ID}] = s
	}
	return all
}

// around is the agent that s names or the closest span around it does, or else the
// name of the closest step: some instrumentations put a nameless step for each turn
// into the span of an agent.
func around(s trace.Span, all map[spanID]trace.Span) string {
	step := ""
	for range all { // ids are the sender's, and parents may go in a circle
		if s.Agent != "" {
			return s.Agent
		}
		if s.Kind == trace.AgentSpan && step == "" {
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

// inDialog is what a request alone tells of who made it.
func (p patterns) inDialog(r *wire.Request) Name {
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

// patterns match what tells no agents apart.
type patterns []*regexp.Regexp

// compile leaves out what is no expression; a spec with one is refused.
func compile(expressions []string) patterns {
	var all patterns
	for _, e := range expressions {
		if p, err := regexp.Compile(e); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// fingerprint is the digest of the instructions, without what is ignored, and of the
// names of the tools.
func (p patterns) fingerprint(r *wire.Request) string {
	var b strings.Builder
	for _, m := range r.Dialog {
		if m.Role == dialog.System {
			text := m.Content
			for _, ignored := range p {
				text = ignored.ReplaceAllLiteralString(text, "")
			}
			b.WriteString(text + "\x00")
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

func (p patterns) sameAgent(a, b *wire.Request) bool {
	return a != nil && b != nil && p.fingerprint(a) == p.fingerprint(b)
}
