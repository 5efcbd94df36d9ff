package jinja

import (
	"math/big"
	"unicode/utf8"
)

// The values of a run are of these types, of bool, int64, *big.Int (beyond 64
// bits), float64 and string. A Go nil is no value at all: a variable without one,
// an argument that wasn't given.
type (
	none struct{}
	// markup is a string that the filter safe marked. Nothing is escaped here, but
	// Python escapes what is added to it, so it isn't added to.
	markup string
	list   struct{ items []any }
	tuple  struct{ items []any }
	// dict keeps the order of its keys, which are string or int64. index is there from
	// the ninth key on.
	dict struct {
		keys   []any
		values []any
		index  map[any]int
	}
	// namespace is the one thing that a template can change.
	namespace struct{ dict }
	// undefined is what has no value; what says which name or attribute.
	undefined struct {
		what string
		// unsafe says that there is a value, but Jinja's sandbox hides it.
		unsafe bool
	}
	// view is keys(), values() or items() of a dict.
	view struct {
		of   *dict
		part string
	}
	// interval is a range.
	interval struct{ start, stop, step int64 }
	// generator is what some filters give: items to be seen once.
	generator struct{ next iterator }
	// method is a method of a value, not called yet.
	method struct {
		of   any
		name string
	}
	// builtin is a global function.
	builtin struct{ name string }
)

// iterator gives one item after the other, and false at the end.
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

func (d *dict) get(key any) (any, bool) {
	if d.index != nil {
		i, found := d.index[key]
		if !found {
			return nil, false
		}
		return d.values[i], true
	}
	for i, k := range d.keys {
		if k == key {
			return d.values[i], true
		}
	}
	return nil, false
}

// put sets the value of a key: at its place if it is there, else at the end.
func (d *dict) put(key any, v any) {
	if d.index == nil && len(d.keys)+1 >= indexFrom {
		d.index = make(map[any]int, 2*indexFrom)
		for i, k := range d.keys {
			d.index[k] = i
		}
	}
	if d.index != nil {
		if i, found := d.index[key]; found {
			d.values[i] = v
			return
		}
		d.index[key] = len(d.keys)
	} else {
		for i, k := range d.keys {
			if k == key {
				d.values[i] = v
				return
			}
		}
	}
	d.keys = append(d.keys, key)
	d.values = append(d.values, v)
}

// keyOf is the key in a dict that equals a value; false where there can't be one.
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

func (d *dict) pair(i int) *tuple { return &tuple{[]any{d.keys[i], d.values[i]}} }

func (n *namespace) set(r *run, name string, v any) {
	if name[0] == '_' {
		r.wrong("a namespace has no attribute that begins with an underscore: %s", name)
	}
	r.make(valueSize)
	n.put(name, v)
}

// valueSize is about what one value takes in a list.
const valueSize = 16

func (i *interval) len() int64 {
	switch {
	case i.step > 0 && i.stop > i.start:
		return (i.stop-i.start-1)/i.step + 1
	case i.step < 0 && i.stop < i.start:
		return (i.start-i.stop-1)/-i.step + 1
	}
	return 0
}

func whole64(i *big.Int) any {
	if i.IsInt64() {
		return i.Int64()
	}
	return i
}

// typeName is Python's name of the type of a value.
func typeName(v any) string {
	switch v.(type) {
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
		return "list"
	case *tuple:
		return "tuple"
	case *dict:
		return "dict"
	case *namespace:
		return "Namespace"
	case *undefined:
		return "Undefined"
	case *view:
		return "view of a dict"
	case *interval:
		return "range"
	case *generator:
		return "generator"
	case *closure:
		return "macro"
	case *loopContext:
		return "loop"
	}
	return "function"
}

// iterate gives the items of a value, as a for loop of Python would.
func (r *run) iterate(v any) iterator {
	switch v := v.(type) {
	case *list:
		return over(v.items)
	case *tuple:
		return over(v.items)
	case *dict:
		return r.iterate(&view{v, "keys"})
	case *view:
		return v.iterate()
	case *undefined:
		return over(nil)
	case *generator:
		return v.next
	case *interval:
		at, left := v.start, v.len()
		return func() (any, bool) {
			if left == 0 {
				return nil, false
			}
			left--
			at += v.step
			return at - v.step, true
		}
	case string:
		return characters(v)
	case markup:
		return characters(string(v))
	case *loopContext:
		r.refuse("a loop over the variable loop")
	}
	r.wrong("a %s has no items", typeName(v))
	return nil
}

func characters(s string) iterator {
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

func (v *view) iterate() iterator {
	i := 0
	return func() (any, bool) {
		if i >= len(v.of.keys) {
			return nil, false
		}
		i++
		switch v.part {
		case "keys":
			return v.of.keys[i-1], true
		case "values":
			return v.of.values[i-1], true
		}
		return v.of.pair(i - 1), true
	}
}

// all gives all items of a value.
func (r *run) all(v any) []any {
	switch v := v.(type) {
	case *list:
		return v.items
	case *tuple:
		return v.items
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

// lengthIfKnown is the length of a value, or −1 where it has none.
func (r *run) lengthIfKnown(v any) int {
	switch v := v.(type) {
	case string:
		return utf8.RuneCountInString(v)
	case markup:
		return utf8.RuneCountInString(string(v))
	case *list:
		return len(v.items)
	case *tuple:
		return len(v.items)
	case *dict:
		return len(v.keys)
	case *view:
		return len(v.of.keys)
	case *interval:
		return int(v.len())
	case *undefined:
		return 0
	}
	return -1
}

func (r *run) length(v any) int64 {
	if c, is := v.(*loopContext); is {
		return int64(c.count())
	}
	n := r.lengthIfKnown(v)
	if n < 0 {
		r.wrong("a %s has no length", typeName(v))
	}
	r.step(n / 64)
	return int64(n)
}

// truth is Python's bool.
func (r *run) truth(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case none, *undefined:
		return false
	case int64:
		return v != 0
	case *big.Int:
		return true // 0 is an int64
	case float64:
		return v != 0
	case string:
		return v != ""
	case markup:
		return v != ""
	case *list, *tuple, *dict, *view, *interval:
		return r.lengthIfKnown(v) > 0
	}
	return true
}
