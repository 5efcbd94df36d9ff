package toolcall

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog/schema"
)

// pythonTag comes before calls of some Llama models.
const pythonTag = "<|python_tag|>"

// llama3 is the format of Llama 3.1 to 3.3: the reply is one call or several,
//
//	{"name": "f", "parameters": {…}}; {"name": …}
//
// A JSON object without a name is content.
type llama3 struct{}

func (llama3) Name() string { return "llama3_json" }

func (llama3) Marks() []string { return []string{pythonTag} }

// Certain returns 0 for a text that begins as a call does.
func (llama3) Certain(text string) int {
	begin := strings.TrimLeft(text, space)
	if begin == "" || begin[0] == '{' || strings.HasPrefix(begin, pythonTag) || strings.HasPrefix(pythonTag, begin) {
		return 0
	}
	return len(text)
}

func (llama3) Parse(text string, tools []Tool) Reply {
	rest, tagged := strings.CutPrefix(strings.TrimLeft(text, space), pythonTag)
	rest = strings.TrimLeft(rest, space)
	if !tagged && (!strings.HasPrefix(rest, "{") || !strings.Contains(rest, `"name"`)) {
		return Reply{Content: text}
	}
	var reply Reply
	for {
		members, after, err := readObject(rest)
		if err == nil && len(reply.Calls) == 0 && !tagged && !slices.ContainsFunc(members, func(m member) bool { return m.key == "name" }) && json.Valid([]byte(rest)) {
			return Reply{Content: text}
		}
		var call Call
		if err == nil {
			call, err = readCall(members, tools, "parameters", "arguments")
		}
		if err != nil {
			return malformed(text, "tool call %d: %v", len(reply.Calls), err)
		}
		reply.Calls = append(reply.Calls, call)
		if rest = strings.TrimLeft(after, space); rest == "" {
			return reply
		}
		if rest[0] != ';' {
			return malformed(text, "text after a tool call")
		}
		rest = strings.TrimLeft(rest[1:], space)
	}
}

func (llama3) Grammar(b *schema.Builder, tools []Tool, _ func(string) schema.Expression) (schema.Expression, error) {
	return anyTool(b, tools, func(t Tool) (schema.Expression, error) {
		arguments, err := b.Object(t.parameters())
		return b.Sequence(b.Literal("{\"name\": "+quoted(t.Name)+", \"parameters\": "), arguments, b.Literal("}")), err
	})
}
