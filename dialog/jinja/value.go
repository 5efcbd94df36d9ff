package jinja

import "strings"

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

// Bool is a bool.
func Bool(b bool) Value { return Value{b} }

// Int is an integer.
func Int(i int64) Value { return Value{i} }

// Float is a float.
func Float(f float64) Value { return Value{f} }

// String is a string. Bytes that are no UTF-8 become U+FFFD.
func String(s string) Value { return Value{strings.ToValidUTF8(s, "\uFFFD")} }

// List is a list of items.
func List(items ...Value) Value {
	l := &list{make([]any, len(items))}
	for i, one := range items {
		l.items[i] = one.inside()
	}
	return Value{l}
}

// Object is an object with these members in this order. Of a key that comes twice
// the last value counts, at the first place.
func Object(members ...Member) Value {
	o := &dict{}
	for _, m := range members {
		o.put(strings.ToValidUTF8(m.Key, "\uFFFD"), m.Value.inside())
	}
	return Value{o}
}

// Member is the member of an object by its key; it is none and false where v is
// no object or has no such member.
func (v Value) Member(key string) (Value, bool) {
	if o, is := v.of.(*dict); is {
		if one, found := o.get(key); found {
			return Value{one}, true
		}
	}
	return Value{}, false
}

// inside is the value as a run sees it.
func (v Value) inside() any {
	if v.of == nil {
		return none{}
	}
	return v.of
}
