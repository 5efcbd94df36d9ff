package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrSchema is wrapped by errors about schemas that are not supported. The error names
// the keyword at fault and, as a JSON pointer, its place.
var ErrSchema = errors.New("unsupported schema")

const (
	maxBytes   = 1 << 18 // of a schema
	maxNesting = 128     // of brackets in a schema
)

// document is a JSON value that keeps the order of its members and knows its place.
type document struct {
	// kind is 'n', 't', 'f', '0', '"', '[' or '{'.
	kind    byte
	text    string // of a number or string
	members []member
	places  map[string]int // index in members by name
	items   []*document
	pointer string
	id      int // unique, in the order of the text
}

type member struct {
	name  string
	value *document
}

// refuse returns an error about the document's place in the schema.
func (d *document) refuse(format string, args ...any) error {
	return fmt.Errorf("%w: #%s: %w", ErrSchema, d.pointer, fmt.Errorf(format, args...))
}

// keyword returns the last name of the document's place.
func (d *document) keyword() string { return d.pointer[strings.LastIndexByte(d.pointer, '/')+1:] }

// readDocument parses JSON. If a name occurs twice in an object, the last value counts.
func readDocument(text []byte) (*document, error) {
	root := &document{}
	if len(text) > maxBytes {
		return nil, root.refuse("%d bytes, want at most %d", len(text), maxBytes)
	}
	if !utf8.Valid(text) {
		return nil, root.refuse("not UTF-8")
	}
	r := reader{json.NewDecoder(bytes.NewReader(text)), 0}
	r.UseNumber()
	d, err := r.read("", 0)
	if err != nil {
		return nil, err
	}
	if _, err := r.Token(); !errors.Is(err, io.EOF) {
		return nil, root.refuse("text after the schema's end")
	}
	return d, nil
}

type reader struct {
	*json.Decoder
	id int
}

func (r *reader) read(pointer string, depth int) (*document, error) {
	d := &document{pointer: pointer, id: r.id}
	r.id++
	if depth > maxNesting {
		return nil, d.refuse("nested deeper than %d", maxNesting)
	}
	token, err := r.Token()
	if err != nil {
		return nil, d.refuse("not JSON: %v", err)
	}
	switch token := token.(type) {
	case nil:
		d.kind = 'n'
	case bool:
		if d.kind = 'f'; token {
			d.kind = 't'
		}
	case json.Number:
		d.kind, d.text = '0', token.String()
	case string:
		d.kind, d.text = '"', token
	case json.Delim:
		d.kind = byte(token)
		err = r.readInside(d, depth)
	}
	return d, err
}

func (r *reader) readInside(d *document, depth int) error {
	for r.More() {
		name := strconv.Itoa(len(d.items))
		if d.kind == '{' {
			token, err := r.Token()
			if err != nil {
				return d.refuse("not JSON: %v", err)
			}
			name = token.(string)
		}
		inside, err := r.read(d.pointer+"/"+escapePointer(name), depth+1)
		if err != nil {
			return err
		}
		d.add(name, inside)
	}
	if _, err := r.Token(); err != nil {
		return d.refuse("not JSON: %v", err)
	}
	return nil
}

func (d *document) add(name string, inside *document) {
	if d.kind == '[' {
		d.items = append(d.items, inside)
		return
	}
	if d.places == nil {
		d.places = map[string]int{}
	}
	if place, twice := d.places[name]; twice {
		d.members[place].value = inside
		return
	}
	d.places[name] = len(d.members)
	d.members = append(d.members, member{name, inside})
}

// member returns the value of a name in an object, or nil if the object does not have it.
func (d *document) member(name string) *document {
	if place, there := d.places[name]; there {
		return d.members[place].value
	}
	return nil
}

// at returns the place that a reference leads to, or nil if there is none. d is the root.
func (d *document) at(reference string) *document {
	fragment, local := strings.CutPrefix(reference, "#")
	pointer, err := url.PathUnescape(fragment)
	if !local || err != nil || pointer != "" && pointer[0] != '/' {
		return nil
	}
	place := d
	if pointer == "" {
		return place
	}
	for part := range strings.SplitSeq(pointer[1:], "/") {
		name := strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		if i, err := strconv.Atoi(name); place.kind == '[' && err == nil && i >= 0 && i < len(place.items) {
			place = place.items[i]
		} else {
			place = place.member(name)
		}
		if place == nil {
			return nil
		}
	}
	return place
}

func escapePointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
