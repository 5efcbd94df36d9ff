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
// The tool's schema decides which values are text. A call is malformed if a value does
// not have its parameter's type.
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
	var o objectSchema
	if err := o.read(tool.parameters()); err != nil {
		o = objectSchema{} // an invalid schema gives no types
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
		if value, rest, ok = strings.Cut(rest, closeParameter); !ok {
			return Call{}, "", fmt.Errorf("parameter %q has no end", name)
		}
		value = strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")
		written, err := o.parameter(name).written(value)
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

// Grammar writes the parameters in the order of the schema. Their strings contain no
// "</".
func (q qwenXML) Grammar(b *schema.Builder, tools []Tool, mark func(string) schema.Expression) (schema.Expression, error) {
	return anyTool(b, tools, func(t Tool) (schema.Expression, error) {
		var o objectSchema
		if err := o.read(t.parameters()); err != nil {
			return schema.Expression{}, err
		}
		parts := []schema.Expression{mark(openCall), b.Literal("\n" + openFunction + t.Name + ">\n")}
		for _, name := range o.order {
			value, err := o.value(b, name)
			if err != nil {
				return schema.Expression{}, err
			}
			one := b.Sequence(b.Literal(openParameter+name+">\n"), value, b.Literal("\n"+closeParameter+"\n"))
			least := 0
			if o.required[name] {
				least = 1
			}
			parts = append(parts, b.Repeat(one, least, 1))
		}
		return b.Sequence(append(parts, b.Literal(closeFunction+"\n"), mark(closeCall))...), nil
	})
}

// parameter has the types of one parameter.
type parameter struct {
	types []string // empty if the schema names none
}

// written returns the JSON of a value that a model wrote.
func (p parameter) written(value string) (string, error) {
	isText := len(p.types) == 0
	for _, kind := range p.types {
		if kind == "string" {
			isText = true
			continue
		}
		if v, ok := asType(kind, strings.Trim(value, space)); ok {
			return v, nil
		}
	}
	if isText {
		return quoted(value), nil
	}
	return "", fmt.Errorf("%.40q is not of type %s", value, strings.Join(p.types, " or "))
}

// asType returns value as JSON of a type. It also accepts Python's spellings: templates
// write values that are not text in them, and models learned them from templates.
func asType(kind, value string) (string, bool) {
	switch value {
	case "True", "False":
		value = strings.ToLower(value)
	case "None":
		value = "null"
	}
	if !json.Valid([]byte(value)) {
		return "", false
	}
	switch value[0] {
	case '{':
		return value, kind == "object"
	case '[':
		return value, kind == "array"
	case 't', 'f':
		return value, kind == "boolean"
	case 'n':
		return value, kind == "null"
	case '"':
		return "", false
	}
	return value, kind == "number" || kind == "integer" && !strings.ContainsAny(value, ".eE")
}
