package jinja

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"
)

// Value is something that a template can be given: none, a bool, a number, a
// string, a list or an object. Objects keep the order of their members, and an
// integer is not a float. The zero Value is none. Values don't change, so
// goroutines may share them.
type Value struct {
	of any
}

// Member is a member of an object.
type Member struct {
	Key   string
	Value Value
}

// Bool returns a bool.
func Bool(b bool) Value { return Value{b} }

// Int returns an integer.
func Int(i int64) Value { return Value{i} }

// Float returns a float.
func Float(f float64) Value { return Value{f} }

// String returns a string. Bytes that are not UTF-8 become U+FFFD.
func String(s string) Value { return Value{strings.ToValidUTF8(s, "\uFFFD")} }

// List returns a list of items.
func List(items ...Value) Value {
	l := &list{items: make([]any, len(items)), kind: listKind}
	for i, one := range items {
		l.items[i] = one.inside()
	}
	return Value{l}
}

// Object returns an object with these members in this order. If a key occurs twice, it
// keeps its first place and gets the last value.
func Object(members ...Member) Value {
	o := &dict{}
	for _, m := range members {
		o.put(strings.ToValidUTF8(m.Key, "\uFFFD"), m.Value.inside())
	}
	return Value{o}
}

// inside returns the value as a run sees it.
func (v Value) inside() any {
	if v.of == nil {
		return none{}
	}
	return v.of
}

// FromJSON reads a value from JSON text. Objects keep the order of the text. If a key
// occurs twice, it keeps its first place and gets the last value. A number without point
// and exponent is an integer of any size.
func FromJSON(text []byte) (Value, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := read(d, 0)
	if err != nil {
		return Value{}, fmt.Errorf("read JSON value: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Value{}, fmt.Errorf("read JSON value: more than one value")
	}
	return Value{v}, nil
}

func read(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	if depth > deepestSet {
		return nil, fmt.Errorf("lists and objects nest deeper than %d", deepestSet)
	}
	switch t := t.(type) {
	case nil:
		return none{}, nil
	case bool, string:
		return t, nil
	case json.Number:
		return number(t.String())
	case json.Delim:
		return readInside(d, t == '[', depth)
	}
	return nil, fmt.Errorf("unexpected %v", t)
}

// readInside reads a list or an object up to its end.
func readInside(d *json.Decoder, isList bool, depth int) (any, error) {
	l, o := &list{kind: listKind}, &dict{}
	for d.More() {
		var key any
		var err error
		if !isList {
			if key, err = d.Token(); err != nil {
				return nil, err
			}
		}
		v, err := read(d, depth+1)
		if err != nil {
			return nil, err
		}
		if isList {
			l.items = append(l.items, v)
		} else {
			o.put(key, v)
		}
	}
	_, err := d.Token()
	if isList {
		return l, err
	}
	return o, err
}

func number(s string) (any, error) {
	if strings.ContainsAny(s, ".eE") {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return nil, fmt.Errorf("number %s: %w", s, err)
		}
		return f, nil
	}
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i, nil
	}
	i, ok := new(big.Int).SetString(s, 10)
	if !ok || len(s) > 4300 { // Python has the same limit
		return nil, fmt.Errorf("number %.40s… is too long", s)
	}
	return i, nil
}
