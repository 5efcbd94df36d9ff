package wire

import "encoding/json"

// jsonSchema is a form of text as all APIs describe it.
type jsonSchema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
	Strict *bool           `json:"strict"`
}

// openFormat is a form of text as Chat nests it and as Responses spells it flat.
type openFormat struct {
	Type   string      `json:"type"`
	Nested *jsonSchema `json:"json_schema"`
	jsonSchema
}

// form reads the form that a reply's text has to have.
func (r *Request) form(field string, format *openFormat) error {
	if format == nil {
		return nil
	}
	switch format.Type {
	case "", "text":
		return nil
	case "json_object":
		r.Format.Schema = json.RawMessage(`{}`)
		return nil
	case "json_schema":
	default:
		return Invalid(field+".type", `%s of type %q is not supported: want "text", "json_object" or "json_schema"`, field, format.Type)
	}
	schema := format.jsonSchema
	if format.Nested != nil {
		schema, field = *format.Nested, field+".json_schema"
	}
	if !given(schema.Schema) {
		schema.Schema = json.RawMessage(`{}`)
	}
	if !isObject(schema.Schema) {
		return Invalid(field+".schema", "the schema is not an object")
	}
	r.Format = Format{Schema: schema.Schema, Name: schema.Name, Strict: schema.Strict != nil && *schema.Strict}
	return nil
}
