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
	if value, changed, err = b.value("", value); err != nil || !changed {
		return body, false, err
	}
	withoutLogprobs(value)
	if out, err = json.Marshal(value); err != nil {
		return nil, false, fmt.Errorf("encode body: %w", err)
	}
	return out, true, nil
}

func (b *bodyRedactor) value(key string, value any) (out any, changed bool, err error) {
	var one bool
	switch value := value.(type) {
	case string:
		if value == "" || structural(key) {
			return value, false, nil
		}
		text, err := b.text(value)
		return text, text != value, err
	case []any:
		for i := range value {
			if value[i], one, err = b.value(key, value[i]); err != nil {
				return nil, false, err
			}
			changed = changed || one
		}
		return value, changed, nil
	case map[string]any:
		for name := range value {
			if value[name], one, err = b.value(name, value[name]); err != nil {
				return nil, false, err
			}
			changed = changed || one
		}
		return value, changed, nil
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
