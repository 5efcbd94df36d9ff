package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// readJSON turns a JSON file into a node.
func readJSON(data []byte) (node, error) {
	r := &jsonReader{data: data, decoder: json.NewDecoder(bytes.NewReader(data))}
	r.decoder.UseNumber()
	n, err := r.value()
	if err == nil {
		if _, more := r.decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the end of the JSON value")
		}
	}
	if err == nil {
		return n, nil
	}
	var already *Faults
	if errors.As(err, &already) {
		return n, already
	}
	line := r.line()
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		line = lineAt(data, syntax.Offset)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the file ends in the middle of a JSON value")
	}
	return n, syntaxFault(line, "no JSON: "+err.Error())
}

type jsonReader struct {
	data    []byte
	decoder *json.Decoder
}

// line returns the line of the token that was read last.
func (r *jsonReader) line() int { return lineAt(r.data, r.decoder.InputOffset()) }

func (r *jsonReader) value() (node, error) {
	token, err := r.decoder.Token()
	if err != nil {
		return node{}, err
	}
	n := node{line: r.line()}
	switch t := token.(type) {
	case json.Delim:
		if t == '{' {
			n.value, err = r.mapping()
		} else {
			n.value, err = r.list()
		}
	case json.Number:
		n.value = number(string(t))
	default:
		n.value = t // nil, bool or string
	}
	return n, err
}

func (r *jsonReader) mapping() ([]entry, error) {
	entries := []entry{}
	for r.decoder.More() {
		token, err := r.decoder.Token()
		if err != nil {
			return nil, err
		}
		key, ok := token.(string)
		if !ok {
			return nil, fmt.Errorf("a key must be text, not %v", token)
		}
		e := entry{key: key, line: r.line()}
		if e.value, err = r.value(); err != nil {
			return nil, err
		}
		for _, earlier := range entries {
			if earlier.key == key {
				return nil, twice(e, earlier)
			}
		}
		entries = append(entries, e)
	}
	_, err := r.decoder.Token() // the closing brace
	return entries, err
}

func (r *jsonReader) list() ([]node, error) {
	items := []node{}
	for r.decoder.More() {
		item, err := r.value()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	_, err := r.decoder.Token() // the closing bracket
	return items, err
}

func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte("\n"))
}
