package toolcall

import (
	"errors"
	"strings"

	"github.com/fulgurite/fulgurite/dialog/schema"
)

const (
	openCall  = "<tool_call>"
	closeCall = "</tool_call>"
)

// hermes is the format of Hermes 2 and 3, Qwen2.5 and Qwen3:
//
//	content <tool_call>
//	{"name": "f", "arguments": {…}}
//	</tool_call> …
type hermes struct{}

func (hermes) Name() string { return "hermes" }

func (hermes) Marks() []string { return []string{openCall, closeCall} }

func (hermes) Certain(text string) int { return before(text, openCall) }

func (hermes) Parse(text string, tools []Tool) Reply {
	return tagged(text, func(rest string) (Call, string, error) {
		members, after, err := readObject(rest)
		if err != nil {
			return Call{}, "", err
		}
		call, err := readCall(members, tools, "arguments")
		after, closed := strings.CutPrefix(strings.TrimLeft(after, space), closeCall)
		if err == nil && !closed {
			err = errors.New("no " + closeCall + " after it")
		}
		return call, after, err
	})
}

// tagged reads the content and the calls after it. Each call begins with openCall; read
// reads the rest of the call, up to and with its end.
func tagged(text string, read func(rest string) (Call, string, error)) Reply {
	content, rest, found := strings.Cut(text, openCall)
	reply := Reply{Content: text}
	for found {
		reply.Content = strings.TrimRight(content, space)
		call, after, err := read(rest)
		if err != nil {
			return malformed(text, "tool call %d: %v", len(reply.Calls), err)
		}
		reply.Calls = append(reply.Calls, call)
		if after = strings.TrimLeft(after, space); after == "" {
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
