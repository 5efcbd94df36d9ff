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

// parameter has the types of one parameter.
type parameter struct {
	types   schema.Types
	untyped bool // the schema names no type
}

// written returns the JSON of a value that a model wrote. A value that can be read as
// another type than a string is read so.
func (p parameter) written(value string) (string, error) {
	if v, ok := p.other(strings.Trim(value, space)); ok {
		return v, nil
	}
	if p.types.String() {
		return quoted(value), nil
	}
	return "", fmt.Errorf("%.40q is not of type %s", value, strings.Join(p.types.Names(), " or "))
}

// other returns value as JSON of one of the types that are not strings. It also accepts
// Python's spellings: templates write values that are not text in them, and models
// learned them from templates.
func (p parameter) other(value string) (string, bool) {
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
		return value, p.types.Object()
	case '[':
		return value, p.types.Array()
	case 't', 'f':
		return value, p.types.Boolean()
	case 'n':
		return value, p.types.Null()
	case '"':
		return "", false
	}
	if strings.ContainsAny(value, ".eE") {
		return value, p.types.Fraction()
	}
	return value, p.types.Integer() || p.types.Fraction()
}

// others returns a regular expression of the texts that written reads as another type
// than a string, and perhaps of more texts. It returns "" if there are none.
func (p parameter) others() string {
	var all []string
	for _, one := range []struct {
		possible bool
		pattern  string
	}{
		{p.types.Object(), `\{[\x{0}-\x{10FFFF}]*`}, {p.types.Array(), `\[[\x{0}-\x{10FFFF}]*`},
		{p.types.Boolean(), `true|True|false|False`}, {p.types.Null(), `null|None`},
		{p.types.Fraction(), `-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?`}, {p.types.Integer() && !p.types.Fraction(), `-?[0-9]+`},
	} {
		if one.possible {
			all = append(all, one.pattern)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return `[ \t\r\n]*(?:` + strings.Join(all, "|") + `)[ \t\r\n]*`
}

// typesOf returns the parameter of a name.
func typesOf(s *schema.Arguments, name string) (parameter, error) {
	types, untyped, err := s.Types(name)
	return parameter{types, untyped}, err
}

// Check returns an error if a tool's schema does not say which of its parameters are
// text, or if a name can't be written.
func (qwenXML) Check(t Tool) error {
	s, err := schema.ReadArguments(t.parameters())
	if err != nil {
		return err
	}
	if !writable(t.Name) {
		return fmt.Errorf("%w: the name %q can't be written in a tag", schema.ErrSchema, t.Name)
	}
	for _, name := range s.Names() {
		if !writable(name) {
			return fmt.Errorf("%w: the name %q of a parameter can't be written in a tag", schema.ErrSchema, name)
		}
		if _, err := typesOf(s, name); err != nil {
			return err
		}
	}
	return nil
}

const outsideTags = "<>\n"

func writable(name string) bool { return name != "" && !strings.ContainsAny(name, outsideTags) }

// Grammar writes the parameters in the order of the schema. Their strings contain no
// "</", and no text that would be read as a value of another type.
func (q qwenXML) Grammar(b *schema.Builder, tools []Tool, mark func(string) schema.Expression) (schema.Expression, error) {
	return anyTool(b, tools, func(t Tool) (schema.Expression, error) {
		if err := q.Check(t); err != nil {
			return schema.Expression{}, err
		}
		types, err := schema.ReadArguments(t.parameters())
		if err != nil {
			return schema.Expression{}, err
		}
		alternatives, err := b.Members(t.parameters())
		if err != nil {
			return schema.Expression{}, err
		}
		var bodies []schema.Expression
		for _, members := range alternatives {
			body, err := q.parameters(b, types, members)
			if err != nil {
				return schema.Expression{}, err
			}
			bodies = append(bodies, body)
		}
		body := b.Choice(bodies...)
		if body.Empty() {
			return body, fmt.Errorf("%w: #: no arguments can be written as text in tags", schema.ErrSchema)
		}
		return b.Sequence(mark(openCall), b.Literal("\n"+openFunction+t.Name+">\n"), body, b.Literal(closeFunction+"\n"), mark(closeCall)), nil
	})
}

// parameters returns the expression of the parameters of one alternative.
func (q qwenXML) parameters(b *schema.Builder, types *schema.Arguments, members schema.Members) (schema.Expression, error) {
	var parts []schema.Expression
	var names []string
	for _, m := range members.Listed {
		value, err := q.value(b, types, m)
		if err != nil {
			return schema.Expression{}, fmt.Errorf("parameter %q: %w", m.Name, err)
		}
		one := b.Sequence(b.Literal(openParameter+m.Name+">\n"), value, b.Literal("\n"+closeParameter+"\n"))
		least := 0
		if m.Required {
			least = 1
		}
		names, parts = append(names, m.Name), append(parts, b.Repeat(one, least, 1))
	}
	if members.Others != nil {
		name, err := b.Name(outsideTags, names)
		if err != nil {
			return schema.Expression{}, err
		}
		value, err := q.value(b, types, *members.Others)
		if err != nil {
			return schema.Expression{}, fmt.Errorf("additional parameters: %w", err)
		}
		one := b.Sequence(b.Literal(openParameter), name, b.Literal(">\n"), value, b.Literal("\n"+closeParameter+"\n"))
		parts = append(parts, b.Repeat(one, 0, 1))
	}
	return b.Sequence(parts...), nil
}

// value returns the expression of a parameter's values: strings as text, others as JSON.
func (q qwenXML) value(b *schema.Builder, types *schema.Arguments, m schema.Member) (schema.Expression, error) {
	p, err := typesOf(types, m.Name)
	if err != nil {
		return schema.Expression{}, err
	}
	texts, err := b.Unclosed(m.Strings)
	if others := p.others(); err == nil && others != "" {
		texts, err = b.Except(texts, others)
	}
	if err != nil {
		return schema.Expression{}, fmt.Errorf("%w: its texts can't be told from the tags and from other types: %w", schema.ErrSchema, err)
	}
	if p.untyped {
		return texts, nil
	}
	return b.Choice(m.Values, texts), nil
}
