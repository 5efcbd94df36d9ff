package conversation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// errRedacted says that a recorded call lacks its tokens, so that nothing continues it.
var errRedacted = errors.New("the call was redacted")

// bodyRedactor rewrites the texts of bodies. It asks the redactor once about each text.
type bodyRedactor struct {
	ctx    context.Context //nolint:containedctx // it lives for one call
	redact func(ctx context.Context, text string) (string, error)
	known  map[string]string
}

// structural reports whether the value of a key is a name of the API and no text of people.
func structural(key string) bool {
	return slices.Contains([]string{
		"role", "type", "object", "model", "id", "tool_call_id", "call_id", "item_id", "tool_use_id", "finish_reason", "stop_reason", "status",
		"user", "safety_identifier", "user_id", "service_tier", "previous_response_id",
	}, key)
}

// body returns a JSON body with all its texts rewritten, byte by byte the same if none
// changed. Log-probabilities go with a change, because they spell the text.
func (b *bodyRedactor) body(body json.RawMessage) (out json.RawMessage, changed bool, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, false, fmt.Errorf("decode body: %w", err)
	}
	if value, changed, err = b.value("", value, false); err != nil || !changed {
		return body, false, err
	}
	withoutLogprobs(value)
	if out, err = json.Marshal(value); err != nil {
		return nil, false, fmt.Errorf("encode body: %w", err)
	}
	return out, true, nil
}

// free reports whether the value of a key is people's own object, whose keys are no names of the
// API.
func free(key string) bool {
	return slices.Contains([]string{"input", "arguments", "metadata", "parameters", "input_schema", "schema"}, key)
}

// value rewrites the texts of the value of a key. Within people's own objects all texts are
// rewritten, the names of fields too.
func (b *bodyRedactor) value(key string, value any, within bool) (out any, changed bool, err error) {
	var one bool
	switch value := value.(type) {
	case string:
		if value == "" || key == "user_id" || structural(key) && !within {
			return value, false, nil
		}
		text, err := b.text(value)
		return text, text != value, err
	case []any:
		for i := range value {
			if value[i], one, err = b.value(key, value[i], within); err != nil {
				return nil, false, err
			}
			changed = changed || one
		}
		return value, changed, nil
	case map[string]any:
		out := make(map[string]any, len(value))
		within = within || free(key)
		for name, of := range value {
			if name == "logprobs" { // they spell the text, and go with it
				out[name] = of
				continue
			}
			if of, one, err = b.value(name, of, within); err != nil {
				return nil, false, err
			}
			changed = changed || one
			if within {
				rewritten, err := b.text(name)
				if err != nil {
					return nil, false, err
				}
				changed, name = changed || rewritten != name, rewritten
			}
			out[name] = of
		}
		return out, changed, nil
	}
	return value, false, nil
}

func (b *bodyRedactor) text(text string) (string, error) {
	if known, ok := b.known[text]; ok {
		return known, nil
	}
	out, err := b.redact(b.ctx, text)
	if err != nil {
		return "", err
	}
	if b.known == nil {
		b.known = map[string]string{}
	}
	b.known[text] = out
	return out, nil
}

func withoutLogprobs(value any) {
	switch value := value.(type) {
	case []any:
		for _, one := range value {
			withoutLogprobs(one)
		}
	case map[string]any:
		if _, ok := value["logprobs"]; ok {
			value["logprobs"] = nil
		}
		for _, one := range value {
			withoutLogprobs(one)
		}
	}
}
