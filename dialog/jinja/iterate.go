package jinja

import (
	"math/big"
	"unicode/utf8"
)

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
