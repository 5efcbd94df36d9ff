package toolcall

import (
	"strings"

	"github.com/fulgurite/fulgurite/dialog/schema"
)

const (
	openCall  = "<tool_call>"
	closeCall = "</tool_call>"
)

// hermes is the spelling of Hermes 2 and 3, Qwen2.5 and Qwen3:
//
//	content <tool_call>
//	{"name": "f", "arguments": {…}}
//	</tool_call> …
type hermes struct{}

func (hermes) Name() string { return "hermes" }

func (hermes) Marks() []string { return []string{openCall, closeCall} }

func (hermes) Certain(text string) int { return before(text, openCall) }

func (hermes) Parse(text string, tools []Tool) Reply {
	content, rest, found := strings.Cut(text, openCall)
	reply := Reply{Content: text}
	for found {
		reply.Content = strings.TrimRight(content, space)
		members, after, err := readObject(rest)
		if err != nil {
			return malformed(text, "tool call %d: %v", len(reply.Calls), err)
		}
		call, err := readCall(members, tools, "arguments")
		if err != nil {
			return malformed(text, "tool call %d: %v", len(reply.Calls), err)
		}
		after = strings.TrimLeft(after, space)
		if !strings.HasPrefix(after, closeCall) {
			return malformed(text, "tool call %d: no %s after it", len(reply.Calls), closeCall)
		}
		reply.Calls = append(reply.Calls, call)
		after = strings.TrimLeft(after[len(closeCall):], space)
		if after == "" {
			break
		}
		if rest, found = strings.CutPrefix(after, openCall); !found {
			return malformed(text, "text after a tool call")
		}
	}
	return reply
}

func (hermes) Grammar(b *schema.Builder, tools []Tool, mark func(string) schema.Expression) (schema.Expression, error) {
	return anyTool(b, tools, func(t Tool) (schema.Expression, error) {
		arguments, err := b.Object(t.parameters())
		return b.Sequence(mark(openCall), b.Literal("\n{\"name\": "+quoted(t.Name)+", \"arguments\": "), arguments,
			b.Literal("}\n"), mark(closeCall)), err
	})
}
