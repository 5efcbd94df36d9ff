package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/url"
	"slices"
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

// allows reports whether a schema plainly restricts nothing.
func (d *document) allows() bool {
	return d.kind == 't' || d.kind == '{' && !d.restricts() && !slices.ContainsFunc(d.members, func(m member) bool {
		return slices.Contains([]string{"$ref", "allOf", "anyOf", "oneOf"}, m.name)
	})
}

// check returns an error for an unsupported keyword, unless it restricts no value that is
// possible.
func (c *compiler) check(f *facts) error {
	for _, r := range f.refusals {
		if refused(r.name)&f.possible() == 0 {
			continue
		}
		idle, err := c.idle(f, r)
		if err != nil {
			return err
		}
		if !idle {
			return r.value.refuse("keyword %q can't be held", r.name)
		}
	}
	if f.types&number == fraction && !f.limited {
		return f.objects[0].place.refuse("numbers without the integers can't be held")
	}
	return nil
}

// idle reports whether a keyword that is not supported restricts none of the values that
// the facts allow and that this package writes.
func (c *compiler) idle(f *facts, r refusal) (bool, error) {
	v := r.value
	switch r.name {
	case "not":
		return c.apart(f, v)
	case "if":
		then, otherwise := r.in.member("then"), r.in.member("else")
		return (then == nil || then.allows()) && (otherwise == nil || otherwise.allows()), nil
	case "extends", "disallow":
		return len(v.items) == 0 && len(v.members) == 0 && (v.kind == '[' || v.kind == '{'), nil
	case "multipleOf", "divisibleBy":
		return f.divides(v)
	case "uniqueItems":
		return v.kind == 'f' || f.size.most == 0 || f.size.most == 1, nil
	case "contains":
		least, most := r.in.member("minContains"), r.in.member("maxContains")
		return most == nil && (least != nil && least.text == "0" || least == nil && v.allows() && f.size.least > 0), nil
	case "minContains", "maxContains":
		return true, nil // they say nothing without contains
	case "unevaluatedItems":
		items := r.in.member("items")
		return v.allows() || items != nil && items.kind != '[' || f.closedAt(r.in.member("prefixItems")), nil
	}
	return c.idleOfObjects(f, r)
}

// apart reports whether a schema has only values of types that the facts exclude.
func (c *compiler) apart(f *facts, d *document) (bool, error) {
	found, err := c.alternatives(d)
	if err != nil {
		return false, err
	}
	for _, one := range found {
		of, err := one.read()
		if err != nil || of.possible()&f.possible() != 0 {
			return false, err
		}
	}
	return true, nil
}

// divides reports whether all integers are multiples of a number. Where the values are
// listed, they are checked one by one.
func (f *facts) divides(v *document) (bool, error) {
	of, err := v.number()
	if err != nil {
		return false, err
	}
	if of.Sign() <= 0 {
		return false, v.refuse("want a number above 0")
	}
	f.multiples = append(f.multiples, of)
	return f.limited || f.possible()&fraction == 0 && new(big.Rat).Inv(of).IsInt(), nil
}

// closedAt reports whether no array has more items than a list of first items.
func (f *facts) closedAt(prefix *document) bool {
	closed, open := false, false
	for _, part := range f.arrays {
		if prefix == nil || len(part.prefix) > len(prefix.items) {
			return false
		}
		closed, open = closed || part.closes, open || part.items != nil
	}
	return closed && !open
}

func (c *compiler) idleOfObjects(f *facts, r refusal) (bool, error) {
	v := r.value
	names := listed(f.objects)
	required := map[string]bool{}
	closed, open := false, false
	for _, part := range f.objects {
		for _, name := range part.required {
			required[name] = true
		}
		closed = closed || part.properties != nil
		open = open || part.additional != nil && !part.additional.forbids()
	}
	closed = closed && !open
	switch r.name {
	case "minProperties":
		n, err := v.count()
		return n <= len(required), err
	case "maxProperties":
		n, err := v.count()
		return closed && n >= len(names), err
	case "propertyNames":
		return c.readNames(f, v)
	case "patternProperties":
		return v.kind == '{' && !slices.ContainsFunc(v.members, func(m member) bool {
			return !closed && !m.value.allows() && !everyName.MatchString(m.name)
		}), nil
	case "dependentRequired", "dependentSchemas", "dependencies":
		return v.kind == '{' && !slices.ContainsFunc(v.members, func(m member) bool {
			met := m.value.kind == '[' && !slices.ContainsFunc(m.value.items, func(name *document) bool { return !required[name.text] })
			return !met && !m.value.allows() && (!closed || slices.Contains(names, m.name))
		}), nil
	case "unevaluatedProperties":
		own := r.in.member("properties")
		return v.allows() || r.in.member("additionalProperties") != nil || closed && own != nil &&
			!slices.ContainsFunc(names, func(name string) bool { return own.member(name) == nil }), nil
	}
	return false, nil
}

// forbids reports whether a schema plainly has no values.
func (d *document) forbids() bool {
	not := d.member("not")
	return d.kind == 'f' || not != nil && not.allows()
}

// readNames reads the schema of the names of properties. It returns false unless the
// schema allows every name or lists all that it allows.
func (c *compiler) readNames(f *facts, d *document) (bool, error) {
	found, err := c.alternatives(d)
	if err != nil {
		return false, err
	}
	names := []string{}
	for _, one := range found {
		of, err := one.read()
		if err == nil {
			err = c.check(of)
		}
		if err != nil {
			return false, err
		}
		own, err := c.newTexts(of)
		switch {
		case err != nil:
			return false, err
		case of.types&text == 0:
		case of.limited:
			for _, v := range of.values {
				if v.kind == '"' && c.matches(own.inner, v.text) {
					names = append(names, v.text)
				}
			}
		case len(own.parts) == 0 && own.length == count{0, unbounded}:
			return true, nil
		default:
			return false, nil
		}
	}
	if f.names == nil {
		f.names = names
		return true, nil
	}
	f.names = slices.DeleteFunc(f.names, func(name string) bool { return !slices.Contains(names, name) })
	return true, nil
}
