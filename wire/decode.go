package wire

import (
	"bytes"
	"encoding/json"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Decode reads a request of an API as its clients write it. Fields that it does not
// know, and those that no reply depends on, are accepted and ignored. The error is a
// *Failure.
func Decode(api API, body []byte) (*Request, error) {
	r := &Request{API: api, Body: slices.Clone(body), N: 1}
	decode := map[API]func(*Request, []byte) error{
		Chat: (*Request).decodeChat, Completions: (*Request).decodeCompletions,
		Responses: (*Request).decodeResponses, Messages: (*Request).decodeMessages,
	}[api]
	if decode == nil {
		return nil, &Failure{Status: http.StatusNotFound, Code: "unknown_url", Message: fmt.Sprintf("there is no API %q", api)}
	}
	if err := decode(r, body); err != nil {
		return nil, err
	}
	return r, nil
}

// checkText refuses a body that is not UTF-8.
func checkText(body []byte) error {
	if utf8.Valid(body) {
		return nil
	}
	return &Failure{Status: http.StatusBadRequest, Code: "invalid_json", Message: "the request's body is not UTF-8"}
}

// Unmarshal decodes a JSON object into v and blames the field that does not fit, or
// that is given twice.
func Unmarshal(body []byte, v any) error {
	if err := checkText(body); err != nil {
		return err
	}
	err := json.Unmarshal(body, v)
	var mistyped *json.UnmarshalTypeError
	switch {
	case err == nil:
		return unambiguous(body)
	case errors.As(err, &mistyped) && mistyped.Field != "":
		field := fieldAt(mistyped.Field, ".")
		return Invalid(field, "%s: want %s, got %s", field, wanted(mistyped.Type), mistyped.Value)
	case errors.As(err, &mistyped):
		return &Failure{Status: http.StatusBadRequest, Code: "invalid_body", Message: "the request's body is not a JSON object"}
	default:
		return &Failure{Status: http.StatusBadRequest, Code: "invalid_json", Message: "the request's body is not JSON: " + err.Error(), Cause: err}
	}
}

// unambiguous refuses objects that give a name twice: readers differ in which of
// the two they take.
func unambiguous(body []byte) error {
	// Half a surrogate pair, which JavaScript sends where it cut a text, reads as
	// U+FFFD.
	_, err := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowInvalidUTF8(true)).ReadValue()
	var at *jsontext.SyntacticError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &at) && errors.Is(err, jsontext.ErrDuplicateName):
		field := fieldAt(strings.TrimPrefix(string(at.JSONPointer), "/"), "/")
		return Invalid(field, "%s is given twice in one object", field)
	default:
		return &Failure{Status: http.StatusBadRequest, Code: "invalid_json", Message: "the request's body is not JSON: " + err.Error(), Cause: err}
	}
}

// fieldAt writes a path as messages[0].role.
func fieldAt(path, separator string) string {
	var field strings.Builder
	for i, name := range strings.Split(path, separator) {
		_, err := strconv.Atoi(name)
		switch {
		case err == nil && i > 0:
			field.WriteString("[" + name + "]")
			continue
		case i > 0:
			field.WriteByte('.')
		}
		field.WriteString(name)
	}
	return field.String()
}

// wanted says in JSON's words what a Go type reads.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	default:
		return "a number"
	}
}

// given reports whether a field is there and not null.
func given(raw json.RawMessage) bool {
	return len(raw) > 0 && string(raw) != "null"
}

// isObject reports whether raw is a JSON object.
func isObject(raw []byte) bool {
	trimmed := bytes.TrimLeft(raw, " \t\r\n")
	return len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(raw)
}

// stringOf is the string that raw holds, or nothing.
func stringOf(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s) // anything else is no string
	return s
}
