package wire

import (
	"encoding/json"
	"slices"
	"strings"
)

// content returns the text of a message. raw is a string, null, or a list of parts of the
// given kinds, whose texts are joined without a separator.
func content(raw json.RawMessage, field string, kinds ...string) (string, error) {
	if !given(raw) {
		return "", nil
	}
	var plain string
	if json.Unmarshal(raw, &plain) == nil {
		return plain, nil
	}
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		return "", Invalid(field, "content is neither text nor a list of parts")
	}
	var all strings.Builder
	for i, part := range parts {
		text, err := partText(part, at(field, i), kinds)
		if err != nil {
			return "", err
		}
		all.WriteString(text)
	}
	return all.String(), nil
}

func partText(raw json.RawMessage, field string, kinds []string) (string, error) {
	var plain string
	if json.Unmarshal(raw, &plain) == nil && raw[0] == '"' {
		return plain, nil
	}
	var part struct{ Type, Text, Refusal string }
	if json.Unmarshal(raw, &part) != nil {
		return "", Invalid(field, "the part is not an object with a type and text")
	}
	if !slices.Contains(kinds, part.Type) {
		return "", textOnly(field, part.Type)
	}
	return part.Text + part.Refusal, nil
}

// textOnly refuses a part of a message that is no text.
func textOnly(field, kind string) *Failure {
	if kind == "" {
		return Invalid(field+".type", "the part has no type: the model reads parts of type \"text\"")
	}
	return Invalid(field+".type", "parts of type %q are not supported: the model reads text only", kind)
}

// unknownRole refuses a message with a role that its API does not have, or without one.
func unknownRole(field, role string) *Failure {
	if role == "" {
		return Invalid(field+".role", "the message has no role")
	}
	return Invalid(field+".role", "role %q is not supported", role)
}
