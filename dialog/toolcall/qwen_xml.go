package toolcall

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/dialog/schema"
)

const (
	openFunction   = "<function="
	closeFunction  = "</function>"
	openParameter  = "<parameter="
	closeParameter = "</parameter>"
)

// qwenXML is the format of Qwen3-Coder and Qwen3.5:
//
//	content <tool_call>
//	<function=f>
//	<parameter=a>
//	text of a string, or another value as JSON
//	</parameter>
//	</function>
//	</tool_call> …
//
// The tool's schema decides which values are text, wherever in the schema a parameter is
// described. A value that may be a string or something else is text unless it can be read
// as something else, and a parameter without a type is text unless its keywords are about
// something else. A call is malformed if a value does not have its parameter's type.
type qwenXML struct{}

func (qwenXML) Name() string { return "qwen3_xml" }

func (qwenXML) Marks() []string { return []string{openCall, closeCall} }

func (qwenXML) Certain(text string) int { return before(text, openCall) }

func (q qwenXML) Parse(text string, tools []Tool) Reply {
	return tagged(text, func(rest string) (Call, string, error) { return q.call(rest, tools) })
}

// call reads a call after its opening, up to and with its end.
func (q qwenXML) call(text string, tools []Tool) (c Call, rest string, err error) {
	c.Name, rest, err = q.named(text, openFunction)
	if err != nil {
		return Call{}, "", err
	}
	tool, ok := find(tools, c.Name)
	if !ok {
		return Call{}, "", fmt.Errorf("unknown tool %q", c.Name)
	}
	types, err := schema.ReadArguments(tool.parameters())
	if err != nil {
		return Call{}, "", fmt.Errorf("parameters of tool %q: %w", c.Name, err)
	}
	var members []string
	seen := map[string]bool{}
	for strings.HasPrefix(strings.TrimLeft(rest, space), openParameter) {
		var name, value string
		if name, rest, err = q.named(rest, openParameter); err != nil {
			return Call{}, "", err
		}
		if seen[name] {
			return Call{}, "", fmt.Errorf("parameter %q occurs twice", name)
		}
		seen[name] = true
		if value, rest, ok = cutValue(rest); !ok {
			return Call{}, "", fmt.Errorf("parameter %q has no end", name)
		}
		value = strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")
		of, err := typesOf(types, name)
		if err != nil {
			return Call{}, "", fmt.Errorf("parameter %q: %w", name, err)
		}
		written, err := of.written(value)
		if err != nil {
			return Call{}, "", fmt.Errorf("parameter %q: %w", name, err)
		}
		members = append(members, quoted(name)+": "+written)
	}
	for _, end := range []string{closeFunction, closeCall} {
		if rest, ok = strings.CutPrefix(strings.TrimLeft(rest, space), end); !ok {
			return Call{}, "", fmt.Errorf("want %s", end)
		}
	}
	c.Arguments = "{" + strings.Join(members, ", ") + "}"
	return c, rest, nil
}

// cutValue returns a parameter's value and what follows its end. Strings in an object or
// array may contain the text of the end.
func cutValue(text string) (value, rest string, ok bool) {
	if begin := strings.TrimLeft(text, space); begin != "" && (begin[0] == '{' || begin[0] == '[') {
		d := json.NewDecoder(strings.NewReader(begin))
		var whole json.RawMessage
		if d.Decode(&whole) == nil {
			after := strings.TrimLeft(begin[d.InputOffset():], space)
			if rest, ok := strings.CutPrefix(after, closeParameter); ok {
				return begin[:d.InputOffset()], rest, true
			}
		}
	}
	return strings.Cut(text, closeParameter)
}

// named reads an opening tag and returns the name in it.
func (qwenXML) named(text, open string) (name, rest string, err error) {
	text, ok := strings.CutPrefix(strings.TrimLeft(text, space), open)
	if !ok {
		return "", "", fmt.Errorf("want %s", open)
	}
	if name, rest, ok = strings.Cut(text, ">"); !ok || name == "" || strings.ContainsAny(name, "<\n") {
		return "", "", fmt.Errorf("%s without a name", open)
	}
	return name, rest, nil
}
