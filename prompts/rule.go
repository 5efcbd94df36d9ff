package prompts

import (
	"fmt"
	"slices"
	"strings"
)

// Role says in which kind of text a rule looks for its match.
type Role string

// The roles. System and Developer are the same role: APIs have one or the other.
const (
	System    Role = "system"
	Developer Role = "developer"
	User      Role = "user"
	// Tool is the description of a tool that the request offers, not a tool's result:
	// results are never replaced.
	Tool Role = "tool"
)

// Roles returns all roles.
func Roles() []Role { return []Role{System, Developer, User, Tool} }

// Rule says which text a prompt replaces.
type Rule struct {
	// Prompt is the name of the prompt.
	Prompt string `json:"prompt"`
	Match  Match  `json:"match"`
}

// Match finds the one text of a request that a rule replaces. Every field that is given
// has to agree.
type Match struct {
	// Agent is the agent's name in the base URL of the request; empty is any.
	Agent string `json:"agent,omitempty"`
	// Model is the model that the request asks for; empty is any.
	Model string `json:"model,omitempty"`
	// Role is the kind of text.
	Role Role `json:"role"`
	// Tool is the name of the tool. Only with role Tool, which needs it.
	Tool string `json:"tool,omitempty"`
	// Position is the number of the message in the request, from 0; nil is any. Not with
	// role Tool.
	Position *int `json:"position,omitempty"`
	// Exact is the complete text, and Prefix its beginning. At most one of them is given.
	// With neither, the complete text is matched, whatever it is.
	Exact  string `json:"exact,omitempty"`
	Prefix string `json:"prefix,omitempty"`
}

// equal reports whether two matches are the same.
func (m Match) equal(o Match) bool {
	if m.Position != nil && o.Position != nil && *m.Position == *o.Position {
		o.Position = m.Position
	}
	return m == o
}

// Length returns how many bytes of a text, from its beginning, the match covers. ok is
// false if the text does not match.
func (m Match) Length(text string) (n int, ok bool) {
	switch {
	case m.Exact != "":
		return len(text), text == m.Exact
	case m.Prefix != "":
		return len(m.Prefix), strings.HasPrefix(text, m.Prefix)
	}
	return len(text), true
}

// String describes the match in a few words.
func (m Match) String() string {
	var words []string
	if m.Agent != "" {
		words = append(words, "agent "+m.Agent)
	}
	if m.Model != "" {
		words = append(words, "model "+m.Model)
	}
	if m.Role == Tool {
		words = append(words, "description of tool "+m.Tool)
	} else {
		words = append(words, string(m.Role)+" message")
	}
	if m.Position != nil {
		words = append(words, fmt.Sprintf("position %d", *m.Position))
	}
	switch {
	case m.Exact != "":
		words = append(words, fmt.Sprintf("exactly %s", short(m.Exact)))
	case m.Prefix != "":
		words = append(words, fmt.Sprintf("prefix %s", short(m.Prefix)))
	}
	return strings.Join(words, ", ")
}

// short quotes the beginning of a text.
func short(text string) string {
	const limit = 40
	runes := []rune(text)
	if len(runes) <= limit {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q…", string(runes[:limit]))
}

// RuleFaults lists what is wrong with rules, given the names of the prompts.
func RuleFaults(rules []Rule, names []string) []Fault {
	var faults []Fault
	for i, r := range rules {
		add := func(field, remedy, format string, args ...any) {
			faults = append(faults, Fault{Prompt: r.Prompt, Rule: i, Field: field, Message: fmt.Sprintf(format, args...), Remedy: remedy})
		}
		there := "give the name of a prompt"
		if len(names) > 0 {
			there += ": " + strings.Join(names, ", ")
		}
		switch {
		case r.Prompt == "":
			add("prompt", there, "missing")
		case !slices.Contains(names, r.Prompt):
			add("prompt", there, "there is no prompt %q", r.Prompt)
		}
		m := r.Match
		if !slices.Contains(Roles(), m.Role) {
			add("match.role", "give system, developer, user or tool", "unknown name %q", m.Role)
		}
		if m.Role == Tool && m.Tool == "" {
			add("match.tool", "give the name of the tool", "missing")
		}
		if m.Role != Tool && m.Tool != "" {
			add("match.tool", `only match.role "tool" has a tool: remove the key`, "unused key")
		}
		switch {
		case m.Position == nil:
		case m.Role == Tool:
			add("match.position", "tools are found by their names: remove the key", "unused key")
		case *m.Position < 0:
			add("match.position", "give 0 or more", "%d is not possible", *m.Position)
		}
		if m.Exact != "" && m.Prefix != "" {
			add("match.prefix", "keep one of match.exact and match.prefix", "both exact and prefix")
		}
		for k, other := range rules[:i] {
			if other.Match.equal(m) {
				add("match", "remove one, or let them differ", "it is the match of rule %d", k)
				break
			}
		}
	}
	return faults
}
