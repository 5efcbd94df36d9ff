package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// MaxReplies is the most replies to one request.
const MaxReplies = 128

// maxTemperature is the highest temperature.
const maxTemperature = 2

// settings are the fields that several APIs have under the same names.
type settings struct {
	Model       any             `json:"model"`
	Stream      *bool           `json:"stream"`
	Temperature *float64        `json:"temperature"`
	TopP        *float64        `json:"top_p"`
	Seed        json.RawMessage `json:"seed"`
	// Variables are what vLLM and SGLang give to the chat template.
	Variables map[string]json.RawMessage `json:"chat_template_kwargs"`
}

func (r *Request) readSettings(s settings) {
	r.Model, _ = s.Model.(string) // any name is accepted, also none
	r.Stream = s.Stream != nil && *s.Stream
	r.Temperature, r.TopP = s.Temperature, s.TopP
	r.Variables = s.Variables
	if !given(s.Seed) {
		return
	}
	seed, err := strconv.ParseInt(string(s.Seed), 10, 64)
	if err != nil {
		r.oddSeed = string(s.Seed)
		return
	}
	r.Seed = &seed
}

// CheckPrefill refuses a request whose reply would continue a message that the client
// began: the model did not sample that beginning, and codecs render whole messages.
func (r *Request) CheckPrefill() error {
	if r.Prefill == "" {
		return nil
	}
	f := Invalid(r.Prefill, "%s is the beginning of the reply (a prefill), which is not supported: end with a message of the user or a tool, ask for a form of the reply, or send the whole prompt to /v1/completions", r.Prefill)
	f.Code = "unsupported_parameter"
	return f
}

// CheckSampling refuses sampling settings that can't be obeyed. Decode lets them
// pass: they do no harm where the terms of an attempt override them.
func (r *Request) CheckSampling() error {
	switch {
	case r.Temperature != nil && (*r.Temperature < 0 || *r.Temperature > maxTemperature):
		return Invalid("temperature", "temperature is %v: want 0 to %d", *r.Temperature, maxTemperature)
	case r.TopP != nil && (*r.TopP <= 0 || *r.TopP > 1):
		return Invalid("top_p", "top_p is %v: want more than 0 and at most 1", *r.TopP)
	case r.oddSeed != "":
		return Invalid("seed", "seed is %s: want an integer of 64 bits", r.oddSeed)
	}
	return nil
}

// readLimit reads the most tokens that a reply may have, from the field called name.
// limit is nil if the client does not give it.
func (r *Request) readLimit(name string, limit *float64) error {
	if limit == nil {
		return nil
	}
	if *limit < 1 || *limit != math.Trunc(*limit) {
		return Invalid(name, "%s is %v: want an integer of at least 1", name, *limit)
	}
	r.MaxTokens = int(min(*limit, math.MaxInt32))
	return nil
}

// readN reads how many replies a client wants.
func (r *Request) readN(n *float64) error {
	if n == nil {
		return nil
	}
	if *n < 1 || *n > MaxReplies || *n != math.Trunc(*n) {
		return Invalid("n", "n is %v: want an integer from 1 to %d", *n, MaxReplies)
	}
	r.N = int(*n)
	return nil
}

// readAlternatives reads how many alternatives to each token a client wants to see.
func (r *Request) readAlternatives(name string, n *float64) error {
	if n == nil {
		return nil
	}
	if *n < 0 || *n > MaxReplies || *n != math.Trunc(*n) {
		return Invalid(name, "%s is %v: want an integer from 0 to %d", name, *n, MaxReplies)
	}
	r.TopLogprobs = int(*n)
	return nil
}

// readStops reads the texts that end a reply: one or a list. Empty ones end nothing.
func (r *Request) readStops(name string, raw json.RawMessage) error {
	if !given(raw) {
		return nil
	}
	var all []string
	if json.Unmarshal(raw, &all) != nil {
		var one string
		if json.Unmarshal(raw, &one) != nil {
			return Invalid(name, "%s is neither a text nor a list of texts", name)
		}
		all = []string{one}
	}
	for _, text := range all {
		if text != "" {
			r.Stop = append(r.Stop, text)
		}
	}
	return nil
}

// streamOptions are the stream_options of Chat and Completions.
type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// at returns the path of an element of a list.
func at(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// jsonSchema is a form of text as all APIs describe it.
type jsonSchema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
	Strict *bool           `json:"strict"`
}

// openFormat is a form of text, nested as in Chat or flat as in Responses.
type openFormat struct {
	Type   string      `json:"type"`
	Nested *jsonSchema `json:"json_schema"`
	jsonSchema
}

// readFormat reads the form that a reply's text has to have.
func (r *Request) readFormat(field string, format *openFormat) error {
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
