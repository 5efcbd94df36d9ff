package wire

import (
	"bytes"
	"encoding/json"
	"encoding/json/jsontext"
	jsonv2 "encoding/json/v2"
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
	decode := r.decoder()
	if decode == nil {
		return nil, &Failure{Status: http.StatusNotFound, Code: "unknown_url", Message: fmt.Sprintf("there is no API %q", api)}
	}
	if err := decode(body); err != nil {
		return nil, err
	}
	return r, nil
}

// decoder returns the function that decodes the API's requests; nil if there is no such
// API.
func (r *Request) decoder() func(body []byte) error {
	switch r.API {
	case Chat:
		return r.decodeChat
	case Completions:
		return r.decodeCompletions
	case Responses:
		return r.decodeResponses
	case Messages:
		return r.decodeMessages
	}
	return nil
}

// checkText refuses a body that is not UTF-8.
func checkText(body []byte) error {
	if utf8.Valid(body) {
		return nil
	}
	return &Failure{Status: http.StatusBadRequest, Code: "invalid_json", Message: "the request's body is not UTF-8"}
}

// Unmarshal decodes a JSON object into v, which is empty. The error names the field that
// does not fit or that is given twice. Only a body that can't be decoded at once is
// decoded again to find that field.
func Unmarshal(body []byte, v any) error {
	if err := checkText(body); err != nil {
		return err
	}
	if jsonv2.Unmarshal(body, v, json.DefaultOptionsV1(), jsontext.AllowDuplicateNames(false)) == nil {
		return nil
	}
	reflect.ValueOf(v).Elem().SetZero()
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
	// JavaScript may cut a text within a surrogate pair. The half that remains is read as
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

// wanted names the JSON type that a Go type reads.
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

// stringOf returns the string that raw holds, "" if it holds none.
func stringOf(raw json.RawMessage) string {
	var s string
	if given(raw) {
		_ = json.Unmarshal(raw, &s) // anything else is no string
	}
	return s
}
