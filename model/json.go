package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// DecodeJSON reads a JSON object of a model's settings, as StandardJSON returns it. An error
// names the line, or the field and what it holds.
func DecodeJSON(text []byte, into any) error {
	err := json.Unmarshal(StandardJSON(text), into)
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Errorf("%s can't be a JSON %s", kind.Field, kind.Value)
	case errors.As(err, &kind):
		return fmt.Errorf("a JSON %s where an object is expected", kind.Value)
	case errors.As(err, &syntax):
		return fmt.Errorf("line %d: no JSON: %w", 1+bytes.Count(text[:min(int(syntax.Offset), len(text))], []byte("\n")), err)
	}
	return err
}

// StandardJSON returns a JSON text in which the numbers that Python writes and JSON does
// not have, NaN and Infinity, are null: config files of models have them in settings that
// were never set. Other texts are returned unchanged.
func StandardJSON(text []byte) []byte {
	if !bytes.Contains(text, []byte("NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return text
	}
	var out []byte
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\' && i+1 < len(text):
			out = append(out, c, text[i+1])
			i++
			continue
		case c == '"':
			quoted = !quoted
		case !quoted:
			if n := beyondJSON(text[i:]); n > 0 {
				out = append(out, "null"...)
				i += n - 1
				continue
			}
		}
		out = append(out, text[i])
	}
	return out
}

// beyondJSON returns the length of a number that JSON does not have.
func beyondJSON(text []byte) int {
	for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
		if bytes.HasPrefix(text, []byte(word)) {
			return len(word)
		}
	}
	return 0
}
