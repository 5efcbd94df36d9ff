// Package rewrite replaces parts of a model request by prompts.
//
// It is a pure function of a request and a [prompts.Set]: a gateway applies it when a
// request arrives, and everybody who reads the request from the record gets the same
// result by applying it again.
//
// The result does not depend on what follows in a dialog: the beginning of a dialog,
// rewritten, is the beginning of the rewritten dialog. A dialog that goes on therefore
// continues the tokens that were made of its beginning. This is why a rule that matches
// twice replaces the first match and not the last.
//
// Rules look at what the agent sent, never at what another rule or prompt put there.
// References ({{prompt:NAME}}) count in system messages only: text of users, tools and
// the model may contain anything.
package rewrite

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// Request is the part of a model request that a set depends on and replaces text in.
type Request struct {
	Agent    string // the agent's name in the base URL; empty if it has none
	Model    string // as the agent wrote it
	Messages []dialog.Message
	Tools    []dialog.Tool
}

// Result is a rewritten request.
type Result struct {
	// Messages and Tools are as many as those of the request, in the same order.
	Messages     []dialog.Message
	Tools        []dialog.Tool
	Replacements []Replacement
	// Problems are rules and references that could not be followed. They left the text as
	// the agent sent it.
	Problems []Problem
}

// Place is a text of a request.
type Place struct {
	// Message is the number of the message, from 0; -1 if the text is of a tool.
	Message int `json:"message"`
	// Tool is the name of the tool whose description the text is.
	Tool string `json:"tool,omitempty"`
}

// String returns the place in the words of the APIs.
func (p Place) String() string {
	if p.Message < 0 {
		return fmt.Sprintf("the description of tool %q", p.Tool)
	}
	return fmt.Sprintf("messages[%d].content", p.Message)
}

// Replacement says what was replaced where.
type Replacement struct {
	// Rule is the number of the rule, from 0; -1 if the agent named the prompt itself.
	Rule   int    `json:"rule"`
	Prompt string `json:"prompt"`
	Place
	// Start and End are the bytes of the text, as the agent sent it, that were replaced.
	Start int `json:"start"`
	End   int `json:"end"`
}

// ProblemKind is a kind of problem.
type ProblemKind string

// The kinds of problem.
const (
	// Repeated is a rule that matches once more in the same request.
	Repeated ProblemKind = "repeated"
	// Overlapping is a rule that matches a text that an earlier rule has replaced.
	Overlapping ProblemKind = "overlapping"
	// Unknown is a reference to a prompt that does not exist.
	Unknown ProblemKind = "unknown"
)

// Problem is a rule or a reference that could not be followed. It is an error, and
// comparable, so that it can be counted.
type Problem struct {
	Kind ProblemKind `json:"kind"`
	// Rule is the number of the rule; -1 for a reference.
	Rule   int    `json:"rule"`
	Prompt string `json:"prompt"`
	// Other is the rule that has replaced the text of an Overlapping one.
	Other int `json:"other,omitempty"`
	Place
}

func (p Problem) Error() string {
	switch p.Kind {
	case Repeated:
		return fmt.Sprintf("rule %d (prompt %q) matches twice in one request, also at %s", p.Rule, p.Prompt, p.Place)
	case Overlapping:
		return fmt.Sprintf("rule %d (prompt %q) matches %s, which rule %d replaces", p.Rule, p.Prompt, p.Place, p.Other)
	default:
		return fmt.Sprintf("the system message %s has {{prompt:%s}}, and there is no such prompt", p.Place, p.Prompt)
	}
}

// Apply rewrites a request. It changes nothing that the request points to. Without a match
// the result has the request's own texts.
func Apply(s prompts.Set, r Request) Result {
	w := rewriter{
		set: s, rules: s.Rules(), request: r, matched: map[int]bool{},
		Result: Result{Messages: slices.Clone(r.Messages), Tools: slices.Clone(r.Tools)},
	}
	for i := range w.Messages {
		w.message(i)
	}
	for i := range w.Tools {
		t := &w.Tools[i]
		t.Description = w.text(Place{Message: -1, Tool: t.Name}, prompts.Tool, t.Description)
	}
	return w.Result
}

// rewriter applies a set to a request.
type rewriter struct {
	set     prompts.Set
	rules   []prompts.Rule
	request Request
	matched map[int]bool // rules that have matched
	Result
}

func (w *rewriter) message(i int) {
	m := &w.Messages[i]
	switch m.Role {
	case dialog.System:
		m.Content = w.text(Place{Message: i}, prompts.System, m.Content)
	case dialog.User:
		m.Content = w.text(Place{Message: i}, prompts.User, m.Content)
	default: // what the model and tools said is theirs
	}
}

// text returns a text of the request with its replacements.
func (w *rewriter) text(at Place, role prompts.Role, text string) string {
	var all []Replacement
	if rule, n := w.rule(at, role, text); rule >= 0 {
		all = append(all, Replacement{Rule: rule, Prompt: w.rules[rule].Prompt, Place: at, End: n})
	}
	if role == prompts.System {
		all = append(all, w.references(at, text, all)...)
	}
	if len(all) == 0 {
		return text
	}
	var b strings.Builder
	done := 0
	for _, r := range all {
		replacement, err := w.set.Prompts().Text(r.Prompt)
		if err != nil {
			panic(err) // the set was checked, and references are
		}
		b.WriteString(text[done:r.Start] + replacement)
		done = r.End
	}
	b.WriteString(text[done:])
	w.Replacements = append(w.Replacements, all...)
	return b.String()
}

// rule returns the number of the rule that replaces the text, and how many of its bytes;
// -1 if there is none.
func (w *rewriter) rule(at Place, role prompts.Role, text string) (rule, n int) {
	rule = -1
	for i, r := range w.rules {
		length, ok := w.matches(r.Match, at, role, text)
		switch {
		case !ok:
			continue
		case w.matched[i]:
			w.Problems = append(w.Problems, Problem{Kind: Repeated, Rule: i, Prompt: r.Prompt, Place: at})
		case rule >= 0:
			w.Problems = append(w.Problems, Problem{Kind: Overlapping, Rule: i, Prompt: r.Prompt, Other: rule, Place: at})
		default:
			rule, n = i, length
		}
		w.matched[i] = true
	}
	return rule, n
}

func (w *rewriter) matches(m prompts.Match, at Place, role prompts.Role, text string) (n int, ok bool) {
	if m.Role == prompts.Developer {
		m.Role = prompts.System
	}
	switch {
	case m.Role != role, m.Tool != at.Tool,
		m.Agent != "" && m.Agent != w.request.Agent,
		m.Model != "" && m.Model != w.request.Model,
		m.Position != nil && *m.Position != at.Message:
		return 0, false
	}
	return m.Length(text)
}

// references returns the replacements of the prompts that the text names, outside of what
// was replaced before.
func (w *rewriter) references(at Place, text string, before []Replacement) []Replacement {
	var out []Replacement
	for _, r := range prompts.References(text) {
		if slices.ContainsFunc(before, func(b Replacement) bool { return r.Start < b.End && b.Start < r.End }) {
			continue
		}
		if _, err := w.set.Prompts().Text(r.Name); err != nil {
			w.Problems = append(w.Problems, Problem{Kind: Unknown, Rule: -1, Prompt: r.Name, Place: at})
			continue
		}
		out = append(out, Replacement{Rule: -1, Prompt: r.Name, Place: at, Start: r.Start, End: r.End})
	}
	return out
}

// Recorded rewrites the request of a call on record, as the gateway did that answered it
// under the terms. What the request only refers to, such as an earlier reply, is not in it.
func Recorded(s prompts.Set, terms record.Terms, c record.Call, r *wire.Request) Result {
	return Apply(s, Request{Agent: c.Agent, Model: cmp.Or(r.Model, terms.Policy), Messages: r.Dialog, Tools: r.Tools})
}
