package tasks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// longestID is the largest number of bytes of a task's id.
const longestID = 200

// ReadJSONL reads tasks, one JSON object per line:
//
//	{"id": "a1", "input": "12+7*3", "answer": "33", "metadata": {"operands": 3}}
//
// id and input are required. input and answer may be JSON of any type; JSON that is not a
// string is kept as its text. An id is a string or a number, and no two tasks have the
// same id. Other keys have to be under metadata. Blank lines, a byte order mark and
// carriage returns are skipped. name is the file's name, for errors. Errors about lines
// are a *FileError, and the error for a file without tasks wraps ErrEmpty.
func ReadJSONL(r io.Reader, name string) ([]Task, error) {
	first := map[string]int{}
	return readLines(r, name, "tasks", func(text []byte, number int) (Task, error) {
		t, err := parseTask(text)
		if err != nil {
			return t, err
		}
		if earlier, ok := first[t.ID]; ok {
			return t, fmt.Errorf("id %q is in line %d already", t.ID, earlier)
		}
		first[t.ID] = number
		return t, nil
	})
}

func parseTask(text []byte) (Task, error) {
	var object map[string]json.RawMessage
	if err := decode(text, &object); err != nil {
		return Task{}, err
	}
	var t Task
	var faults []string
	for _, key := range slices.Sorted(maps.Keys(object)) {
		var err error
		switch value := object[key]; key {
		case "id":
			t.ID, err = id(value)
		case "input":
			t.Input = textOf(value)
		case "answer":
			t.Answer = textOf(value)
		case "metadata":
			if err = decode(value, &t.Metadata); err != nil {
				err = errors.New("metadata is not a JSON object")
			}
		default:
			err = fmt.Errorf("unknown key %q; put it under metadata, which agents see, or, if it tells the answer, into answer, which they never see", key)
		}
		if err != nil {
			faults = append(faults, err.Error())
		}
	}
	for _, key := range []string{"id", "input"} {
		if value, ok := object[key]; !ok || string(value) == "null" {
			faults = append(faults, "no "+key)
		}
	}
	if len(faults) > 0 {
		return Task{}, errors.New(strings.Join(faults, "; "))
	}
	return t, nil
}

// decode reads one JSON value and returns an error if anything follows it. In values of
// any type, numbers keep their text.
func decode(text []byte, value any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(value); err != nil {
		var kind *json.UnmarshalTypeError
		switch {
		case errors.As(err, &kind) && kind.Field == "":
			return fmt.Errorf("a JSON %s where an object is expected", kind.Value)
		case errors.As(err, &kind):
			return fmt.Errorf("%s can't be a JSON %s", kind.Field, kind.Value)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return errors.New("the line ends in the middle of its JSON")
		}
		return fmt.Errorf("no JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON object")
	}
	return nil
}

func id(value json.RawMessage) (string, error) {
	if value[0] != '"' && value[0] != '-' && (value[0] < '0' || value[0] > '9') {
		if string(value) == "null" {
			return "", nil // reported as missing
		}
		return "", errors.New("id is neither text nor a number")
	}
	text := textOf(value)
	switch {
	case text == "":
		return "", errors.New("empty id")
	case len(text) > longestID:
		return "", fmt.Errorf("id of %d bytes; at most %d are allowed", len(text), longestID)
	case strings.ContainsFunc(text, unicode.IsControl):
		return "", fmt.Errorf("id %q has a control character", text)
	}
	return text, nil
}

// textOf returns the text of a JSON string, "" for null, and for anything else the JSON
// without white space.
func textOf(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	var b bytes.Buffer
	if err := json.Compact(&b, value); err != nil {
		return string(value)
	}
	return b.String()
}

// Encode writes tasks as canonical JSONL. Equal tasks give equal bytes, so a snapshot can
// be named by its digest. Encode fails only for metadata that JSON can't represent.
func Encode(list []Task) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, t := range list {
		if err := e.Encode(t); err != nil {
			return nil, fmt.Errorf("encode task %s: %w", t.ID, err)
		}
	}
	return b.Bytes(), nil
}

// Decode reads what Encode has written.
func Decode(data []byte) ([]Task, error) { return ReadJSONL(bytes.NewReader(data), "snapshot") }
