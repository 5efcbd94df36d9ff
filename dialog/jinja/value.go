package jinja

import (
	"bytes"
	"cmp"
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

// compare applies one of the operators == != < <= > >= in and not in.
func (r *run) compare(op string, a, b any) bool {
	switch op {
	case "==":
		return r.equal(a, b)
	case "!=":
		return !r.equal(a, b)
	case "in":
		return r.contains(b, a)
	case "not in":
		return !r.contains(b, a)
	}
	for _, v := range []any{a, b} {
		if u, ok := v.(*undefined); ok {
			r.undefined(u)
		}
	}
	c := r.order(op, a, b, 0)
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

func (r *run) equal(a, b any) bool { return r.same(a, b, 0) }

// same implements Python's ==.
func (r *run) same(a, b any, depth int) bool {
	r.step(1)
	r.deep(depth)
	if x, y := toNumber(a), toNumber(b); x != nil && y != nil {
		return orderNumbers(x, y) == 0
	}
	if x, ok := plain(a); ok {
		y, ok := plain(b)
		return ok && r.bare(x) == r.bare(y)
	}
	switch x := a.(type) {
	case none:
		_, ok := b.(none)
		return ok
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	case *list:
		y, ok := b.(*list)
		if ok && (x.isView() && y.isView() || x.kind == rangeKind && y.kind == rangeKind) {
			r.refuse("== of a %s and a %s", x.kind, y.kind)
		}
		return ok && x.kind == y.kind && r.sameItems(x.items, y.items, depth)
	case *dict:
		y, ok := b.(*dict)
		return ok && r.sameMembers(x, y, depth)
	case *function:
		if y, ok := b.(*function); ok && !x.macro && !y.macro {
			r.refuse("== of two functions")
		}
	}
	return a == b
}

// plain returns the text of a string, whether it is marked as safe or not.
func plain(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
}

func (r *run) sameItems(a, b []any, depth int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !r.same(a[i], b[i], depth+1) {
			return false
		}
	}
	return true
}

func (r *run) sameMembers(a, b *dict, depth int) bool {
	if len(a.keys) != len(b.keys) {
		return false
	}
	for i, key := range a.keys {
		v, found := b.get(key)
		if !found || !r.same(a.values[i], v, depth+1) {
			return false
		}
	}
	return true
}

// orderNumbers compares numbers exactly.
func orderNumbers(a, b any) int {
	i, iIs := a.(int64)
	j, jIs := b.(int64)
	if iIs && jIs {
		return cmp.Compare(i, j)
	}
	return bigFloat(a).Cmp(bigFloat(b))
}

func bigFloat(v any) *big.Float {
	switch v := v.(type) {
	case int64:
		return new(big.Float).SetInt64(v)
	case *big.Int:
		return new(big.Float).SetInt(v)
	}
	return new(big.Float).SetFloat64(v.(float64))
}

// order compares two values that have an order.
func (r *run) order(op string, a, b any, depth int) int {
	r.step(1)
	r.deep(depth)
	if x, y := toNumber(a), toNumber(b); x != nil && y != nil {
		return orderNumbers(x, y)
	}
	x, xIs := plain(a)
	y, yIs := plain(b)
	if xIs && yIs {
		return strings.Compare(r.bare(x), r.bare(y))
	}
	if x, ok := a.(*list); ok {
		if x.isView() {
			r.refuse("%s with a view of a dict", op)
		}
		if y, ok := b.(*list); ok && x.kind == y.kind && x.kind != rangeKind {
			return r.orderItems(op, x.items, y.items, depth)
		}
	}
	if u, ok := b.(*undefined); ok {
		r.undefined(u)
	}
	r.wrong("%s %s %s", typeName(a), op, typeName(b))
	return 0
}

func (r *run) orderItems(op string, a, b []any, depth int) int {
	for i := range min(len(a), len(b)) {
		if !r.same(a[i], b[i], depth+1) {
			return r.order(op, a[i], b[i], depth+1)
		}
	}
	return cmp.Compare(len(a), len(b))
}

// contains implements Python's in.
func (r *run) contains(in, v any) bool {
	if whole, ok := plain(in); ok {
		part, ok := plain(v)
		if !ok {
			r.wrong("a %s in a string", typeName(v))
		}
		r.step(len(whole) / 64)
		return strings.Contains(r.bare(whole), r.bare(part))
	}
	switch in := in.(type) {
	case *dict:
		return r.hasKey(in, v)
	case *list:
		if in.kind == viewKind+"keys" {
			r.hashable(v)
		}
	case *undefined, *generator:
	default:
		r.wrong("in a %s", typeName(in))
	}
	next := r.iterate(in)
	for one, more := next(); more; one, more = next() {
		if r.equal(one, v) {
			return true
		}
	}
	return false
}
