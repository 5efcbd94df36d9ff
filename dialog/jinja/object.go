package jinja

import (
	"math/big"
	"strings"
	"unicode/utf8"
)

// The values of a run have these types, or bool, int64, *big.Int (beyond 64 bits),
// float64 or string. A Go nil means that there is no value: a variable without a value,
// or an argument that wasn't given.
type (
	none struct{}
	// markup is a string that the filter safe marked. This package escapes nothing, but
	// Python escapes a string that is added to a marked one.
	markup string
	// list is a list, a tuple, a range or a view of a dict; kind is Python's name of
	// the type, and text what Python writes of a range.
	list struct {
		items []any
		kind  string
		text  string
	}
	// dict keeps the order of its keys, which are string or int64. index exists only if
	// there are more than eight keys.
	dict struct {
		keys   []any
		values []any
		index  map[any]int
	}
	// namespace is the one thing that a template can change.
	namespace struct{ dict }
	// undefined is the value of a missing name or attribute. what describes that.
	undefined struct {
		what string
		// unsafe is true if there is a value that Jinja's sandbox hides.
		unsafe bool
	}
	// missing is Python's marker of a variable without a value. A template can reach it
	// in some places.
	missing struct{}
	// generator is the result of some filters: items that can be read once.
	generator struct{ next iterator }
	// function is a macro, a global function or a method of a value.
	function struct {
		macro bool
		call  func(*run, actual) any
	}
)

// The kinds of lists. The kind of a view begins with viewKind.
const (
	listKind  = "list"
	tupleKind = "tuple"
	rangeKind = "range"
	viewKind  = "dict_"
)

func (l *list) isView() bool { return strings.HasPrefix(l.kind, viewKind) }

// iterator returns one item after the other, and false at the end.
type iterator func() (any, bool)

func over(items []any) iterator {
	return func() (any, bool) {
		if len(items) == 0 {
			return nil, false
		}
		first := items[0]
		items = items[1:]
		return first, true
	}
}

const indexFrom = 9

func (d *dict) at(key any) int {
	if d.index != nil {
		if i, found := d.index[key]; found {
			return i
		}
		return -1
	}
	for i, k := range d.keys {
		if k == key {
			return i
		}
	}
	return -1
}

func (d *dict) get(key any) (any, bool) {
	if i := d.at(key); i >= 0 {
		return d.values[i], true
	}
	return nil, false
}

// put sets the value of a key. A key that exists keeps its place; a new one is added at
// the end.
func (d *dict) put(key any, v any) {
	if i := d.at(key); i >= 0 {
		d.values[i] = v
		return
	}
	d.keys = append(d.keys, key)
	d.values = append(d.values, v)
	if n := len(d.keys); n >= indexFrom {
		if d.index == nil {
			d.index = make(map[any]int, 2*n)
			for i, k := range d.keys {
				d.index[k] = i
			}
		}
		d.index[key] = n - 1
	}
}

// view returns the result of keys(), values() or items().
func (r *run) view(d *dict, part string) *list {
	l := &list{items: d.keys, kind: viewKind + part}
	if part == "values" {
		l.items = d.values
	}
	if part == "items" {
		r.make(3 * valueSize * len(d.keys))
		l.items = make([]any, len(d.keys))
		for i := range d.keys {
			l.items[i] = &list{items: []any{d.keys[i], d.values[i]}, kind: tupleKind}
		}
	}
	return l
}

// keyOf returns the key in a dict that equals a value. It returns false if there can't be
// such a key.
func keyOf(v any) (key any, can bool) {
	switch v := v.(type) {
	case string, int64:
		return v, true
	case markup:
		return string(v), true
	case bool:
		return toNumber(v), true
	case float64:
		if i := int64(v); float64(i) == v && i > -exactFloat && i < exactFloat {
			return i, true
		}
	}
	return nil, false
}

// key returns the key of an object that a template makes.
func (r *run) key(v any) any {
	switch v := v.(type) {
	case string, int64:
		return v
	}
	r.hashable(v)
	r.refuse("a %s as a key", typeName(v))
	return nil
}

// hashable refuses what can't be a key in Python.
func (r *run) hashable(v any) {
	_, ok := v.(*dict)
	if l, isList := v.(*list); ok || isList && l.kind == listKind {
		r.wrong("a %s can't be a key", typeName(v))
	}
}

func (r *run) hasKey(d *dict, v any) bool {
	r.hashable(v)
	key, can := keyOf(v)
	return can && d.at(key) >= 0
}

func (n *namespace) set(r *run, name string, v any) {
	if name[0] == '_' {
		r.wrong("a namespace has no attribute that begins with an underscore: %s", name)
	}
	r.make(valueSize)
	n.put(name, v)
}

// valueSize is about how many bytes one value takes in a list.
const valueSize = 16

func whole64(i *big.Int) any {
	if i.IsInt64() {
		return i.Int64()
	}
	return i
}

// typeName returns Python's name of the type of a value.
func typeName(v any) string {
	switch v := v.(type) {
	case none:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case *list:
		return v.kind
	case *dict:
		return "dict"
	case *namespace:
		return "Namespace"
	case *undefined:
		return "Undefined"
	case *generator:
		return "generator"
	case *loopContext:
		return "loop"
	case missing:
		return "MissingType"
	}
	return "function"
}

// iterate returns the items of a value in the order in which a for loop of Python visits
// them.
func (r *run) iterate(v any) iterator {
	switch v := v.(type) {
	case *list:
		return over(v.items)
	case *dict:
		return over(v.keys)
	case *undefined:
		return over(nil)
	case *generator:
		return v.next
	case *loopContext:
		r.refuse("a loop over the variable loop")
	}
	s, ok := plain(v)
	if !ok {
		r.wrong("a %s has no items", typeName(v))
	}
	return func() (any, bool) {
		if s == "" {
			return nil, false
		}
		_, n := utf8.DecodeRuneInString(s)
		first := s[:n]
		s = s[n:]
		return first, true
	}
}

// all returns all items of a value.
func (r *run) all(v any) []any {
	if l, ok := v.(*list); ok {
		return l.items
	}
	var items []any
	next := r.iterate(v)
	for one, more := next(); more; one, more = next() {
		r.step(1)
		r.make(valueSize)
		items = append(items, one)
	}
	return items
}

// lengthIfKnown returns the length of a value, or −1 if it has none.
func (r *run) lengthIfKnown(v any) int {
	switch v := v.(type) {
	case *list:
		return len(v.items)
	case *dict:
		return len(v.keys)
	case *undefined:
		return 0
	}
	if s, ok := plain(v); ok {
		return utf8.RuneCountInString(s)
	}
	return -1
}

func (r *run) length(v any) int64 {
	if c, ok := v.(*loopContext); ok {
		return int64(c.count())
	}
	n := r.lengthIfKnown(v)
	if n < 0 {
		r.wrong("a %s has no length", typeName(v))
	}
	r.step(n / 64)
	return int64(n)
}

// truth implements Python's bool.
func (r *run) truth(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case none, *undefined:
		return false
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case markup:
		return v != ""
	case *list:
		return len(v.items) > 0
	case *dict:
		return len(v.keys) > 0
	}
	return true // a *big.Int is never 0
}
