package toolcall

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog/schema"
)

// The marks of Mistral's calls.
const (
	mistralCalls     = "[TOOL_CALLS]"
	mistralID        = "[CALL_ID]"
	mistralArguments = "[ARGS]"
)

// mistral is the format of Mistral's models. Versions 1 to 7 of their tokenizers write a
// list,
//
//	content [TOOL_CALLS] [{"name": "f", "arguments": {…}, "id": "…"}, …]
//
// and later versions write each call by itself:
//
//	content [TOOL_CALLS]f[CALL_ID]…[ARGS]{…}[TOOL_CALLS]…
//
// The ids are optional, and the agent gets its own.
type mistral struct{}

func (mistral) Name() string { return "mistral" }

func (mistral) Marks() []string { return []string{mistralCalls, mistralID, mistralArguments} }

func (mistral) Certain(text string) int { return before(text, mistralCalls) }

func (m mistral) Parse(text string, tools []Tool) Reply {
	content, rest, found := strings.Cut(text, mistralCalls)
	if !found {
		return Reply{Content: text}
	}
	reply := Reply{Content: strings.TrimRight(content, space)}
	var err error
	if rest = strings.Trim(rest, space); strings.HasPrefix(rest, "[") {
		reply.Calls, err = m.list(rest, tools)
	} else {
		reply.Calls, err = m.each(rest, tools)
	}
	if err != nil {
		return malformed(text, "tool call %d: %v", len(reply.Calls), err)
	}
	return reply
}

// list reads a list of calls.
func (mistral) list(text string, tools []Tool) (calls []Call, err error) {
	text = text[1:]
	for {
		members, rest, err := readObject(strings.TrimLeft(text, space))
		if err != nil {
			return calls, err
		}
		members = slices.DeleteFunc(members, func(m member) bool { return m.key == "id" })
		call, err := readCall(members, tools, "arguments")
		if err != nil {
			return calls, err
		}
		calls = append(calls, call)
		rest = strings.TrimLeft(rest, space)
		if rest == "]" {
			return calls, nil
		}
		var more bool
		if text, more = strings.CutPrefix(rest, ","); !more {
			return calls, errors.New("want , or the end of the list after it")
		}
	}
}

// each reads calls that stand by themselves. The first mark has been read.
func (mistral) each(text string, tools []Tool) (calls []Call, err error) {
	for {
		head, rest, found := strings.Cut(text, "{")
		if !found {
			return calls, errors.New("no arguments")
		}
		head, _, _ = strings.Cut(head, mistralArguments)
		name, _, _ := strings.Cut(head, mistralID)
		call := Call{Name: strings.Trim(name, space)}
		if _, ok := find(tools, call.Name); !ok {
			return calls, fmt.Errorf("unknown tool %q", call.Name)
		}
		text = "{" + rest
		_, after, err := readObject(text)
		if err != nil {
			return calls, fmt.Errorf("arguments: %w", err)
		}
		call.Arguments = text[:len(text)-len(after)]
		calls = append(calls, call)
		if after = strings.TrimLeft(after, space); after == "" {
			return calls, nil
		}
		if text, found = strings.CutPrefix(after, mistralCalls); !found {
			return calls, errors.New("text after it")
		}
	}
}

// Grammar writes one call, as a list.
func (mistral) Grammar(b *schema.Builder, tools []Tool, mark func(string) schema.Expression) (schema.Expression, error) {
	return anyTool(b, tools, func(t Tool) (schema.Expression, error) {
		arguments, err := b.Object(t.parameters())
		list := b.Sequence(mark(mistralCalls), b.Literal(" [{\"name\": "+quoted(t.Name)+", \"arguments\": "), arguments, b.Literal("}]"))
		return list, err
	})
}
