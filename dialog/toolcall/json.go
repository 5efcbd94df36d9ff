package toolcall

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog/schema"
)

// member is a member of a JSON object, its value as it was written.
type member struct {
	key   string
	value json.RawMessage
}

// readObject reads the JSON object that text begins with and returns the rest.
func readObject(text string) (members []member, rest string, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, "", errors.New("not a JSON object")
	}
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, "", errors.New("not a JSON object")
		}
		m := member{key: key.(string)} // a decoder returns a string for a key
		if err := d.Decode(&m.value); err != nil {
			return nil, "", fmt.Errorf("the value of %q is not JSON", m.key)
		}
		if seen[m.key] {
			return nil, "", fmt.Errorf("%q occurs twice", m.key)
		}
		seen[m.key] = true
		members = append(members, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, "", errors.New("not a JSON object")
	}
	return members, text[d.InputOffset():], nil
}

// readCall makes a call from the members of an object: "name", and the arguments under
// one of the keys.
func readCall(members []member, tools []Tool, keys ...string) (Call, error) {
	var c Call
	named := false
	for _, m := range members {
		switch {
		case m.key == "name":
			if json.Unmarshal(m.value, &c.Name) != nil || string(m.value) == "null" {
				return Call{}, errors.New(`"name" is not a string`)
			}
			named = true
		case m.key == "type" && string(m.value) == `"function"`:
		case slices.Contains(keys, m.key) && c.Arguments == "":
			if m.value[0] != '{' {
				return Call{}, fmt.Errorf("%q is not a JSON object", m.key)
			}
			c.Arguments = string(m.value)
		default:
			return Call{}, fmt.Errorf("%q out of place", m.key)
		}
	}
	switch {
	case !named:
		return Call{}, errors.New(`"name" is absent`)
	case c.Arguments == "":
		return Call{}, fmt.Errorf("%q is absent", keys[0])
	}
	if _, ok := find(tools, c.Name); !ok {
		return Call{}, fmt.Errorf("unknown tool %q", c.Name)
	}
	return c, nil
}

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
