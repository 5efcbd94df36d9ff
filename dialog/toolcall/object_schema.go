package toolcall

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog/schema"
)

// objectSchema is the schema of a tool's arguments, for a format that writes each
// argument by itself.
type objectSchema struct {
	order      []string
	properties map[string]json.RawMessage
	required   map[string]bool
	// shared are the definitions to which properties may refer, as written.
	shared      []string
	definitions map[string]json.RawMessage // by reference
}

// read reads the parts of a schema that concern single properties.
func (o *objectSchema) read(text json.RawMessage) error {
	members, _, err := readObject(string(text))
	if err != nil {
		return fmt.Errorf("%w: parameters: %w", schema.ErrSchema, err)
	}
	o.properties, o.required, o.definitions = map[string]json.RawMessage{}, map[string]bool{}, map[string]json.RawMessage{}
	for _, m := range members {
		switch m.key {
		case "properties":
			properties, _, err := readObject(string(m.value))
			if err != nil {
				return fmt.Errorf("%w: /properties: %w", schema.ErrSchema, err)
			}
			for _, p := range properties {
				o.order = append(o.order, p.key)
				o.properties[p.key] = p.value
			}
		case "required":
			var names []string
			if err := json.Unmarshal(m.value, &names); err != nil {
				return fmt.Errorf("%w: /required: %w", schema.ErrSchema, err)
			}
			for _, name := range names {
				o.required[name] = true
			}
		case "$defs", "definitions":
			o.shared = append(o.shared, quoted(m.key)+":"+string(m.value))
			definitions, _, _ := readObject(string(m.value))
			for _, d := range definitions {
				o.definitions["#/"+m.key+"/"+d.key] = d.value
			}
		}
	}
	return nil
}

// parameter returns the types that the schema of a parameter allows. A list of
// alternatives allows the types of all of them; an enumeration allows the types of its
// members.
func (o *objectSchema) parameter(name string) parameter {
	var p parameter
	o.add(&p, o.properties[name], 0)
	slices.Sort(p.types)
	p.types = slices.Compact(p.types)
	return p
}

func (o *objectSchema) add(p *parameter, text json.RawMessage, depth int) {
	var s struct {
		Type  json.RawMessage   `json:"type"`
		Enum  []json.RawMessage `json:"enum"`
		Const json.RawMessage   `json:"const"`
		Ref   string            `json:"$ref"`
		AllOf []json.RawMessage `json:"allOf"`
		AnyOf []json.RawMessage `json:"anyOf"`
		OneOf []json.RawMessage `json:"oneOf"`
	}
	if depth > 4 || json.Unmarshal(text, &s) != nil {
		return
	}
	var one string
	var several []string
	switch {
	case json.Unmarshal(s.Type, &one) == nil && one != "":
		p.types = append(p.types, one)
	case json.Unmarshal(s.Type, &several) == nil && len(several) > 0:
		p.types = append(p.types, several...)
	case len(s.Const) > 0:
		p.types = append(p.types, typeOf(s.Const))
	}
	if len(s.Type) == 0 {
		for _, value := range s.Enum {
			p.types = append(p.types, typeOf(value))
		}
	}
	if s.Ref != "" {
		o.add(p, o.definitions[s.Ref], depth+1)
	}
	for _, option := range slices.Concat(s.AllOf, s.AnyOf, s.OneOf) {
		o.add(p, option, depth+1)
	}
}

// typeOf returns the type of a JSON value.
func typeOf(value json.RawMessage) string {
	switch value[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	case '"':
		return "string"
	}
	if strings.ContainsAny(string(value), ".eE") {
		return "number"
	}
	return "integer"
}

// value returns the grammar of a parameter's value: text if its only type is string, else
// JSON.
func (o *objectSchema) value(b *schema.Builder, name string) (schema.Expression, error) {
	types := o.parameter(name).types
	own := string(o.properties[name])
	isText := slices.Contains(types, "string")
	if isText && len(types) > 1 || len(types) == 0 {
		return schema.Expression{}, fmt.Errorf("%w: /properties/%s: text and other types in one parameter", schema.ErrSchema, name)
	}
	if !isText {
		return b.Value(o.with(own))
	}
	key := quoted(name)
	// A text that contains the end of the parameter would end it too early. The pattern
	// excludes such texts.
	bounded := `{"allOf":[` + own + `,{"type":"string","pattern":"^(?:[^<]|<+[^/<])*<*$"}]}`
	return b.Property(o.with(`{"type":"object","properties":{`+key+`:`+bounded+`},"required":[`+key+`]}`), name)
}

// with returns a schema together with the definitions to which it may refer.
func (o *objectSchema) with(own string) json.RawMessage {
	if len(o.shared) == 0 {
		return json.RawMessage(own)
	}
	return json.RawMessage(`{"allOf":[` + own + `],` + strings.Join(o.shared, ",") + `}`)
}
