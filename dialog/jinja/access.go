package jinja

import (
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"
)

// attribute returns value.name: an attribute in Python's sense, such as a method, or else
// the item of that name.
func (r *run) attribute(of any, name string) any {
	if v := r.member(of, name); v != nil {
		return v
	}
	if d, ok := of.(*dict); ok {
		if v, found := d.get(name); found {
			return v
		}
	}
	return r.absent(of, name)
}

// item returns value[key]: the item, or else the attribute of that name.
func (r *run) item(of, key any) any {
	if u, ok := of.(*undefined); ok {
		r.undefined(u)
	}
	if v := r.element(of, key); v != nil {
		return v
	}
	if name, ok := plain(key); ok {
		if strings.HasPrefix(name, "__") {
			r.refuse("attribute %s", name)
		}
		if v := r.member(of, name); v != nil {
			return v
		}
		return r.absent(of, name)
	}
	return &undefined{what: "an item of a " + typeName(of)}
}

func (r *run) absent(of any, name string) any {
	r.make(len(name))
	return &undefined{what: "attribute " + name + " of a " + typeName(of)}
}

// element returns the item at a key or an index, or nil if there is no such item.
func (r *run) element(of, key any) any {
	if d, ok := of.(*dict); ok {
		if one, can := keyOf(key); can {
			v, _ := d.get(one)
			return v
		}
		return nil
	}
	i, ok := toNumber(key).(int64)
	if !ok {
		return nil
	}
	switch of := of.(type) {
	case *list:
		if n := int64(len(of.items)); !of.isView() && -n <= i && i < n {
			return of.items[(i+n)%n]
		}
	case string:
		n := int64(utf8.RuneCountInString(of))
		if -n <= i && i < n {
			r.step(len(of) / 64)
			if i = (i + n) % n; int(n) == len(of) {
				return of[i : i+1]
			}
			return string([]rune(of)[i])
		}
	case markup:
		r.refuse("a character of a string that is marked as safe")
	}
	return nil
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c >= utf8.RuneSelf })
}

// member returns an attribute that the type of a value has, or nil if it has no such
// attribute.
func (r *run) member(of any, name string) any {
	changing, foreign := false, false
	switch of := of.(type) {
	case *undefined:
		r.undefined(of)
	case *namespace:
		v, _ := of.get(name)
		return v
	case *loopContext:
		if strings.HasPrefix(name, "_") {
			r.refuse("attribute %s of loop", name)
		}
		return of.attribute(name)
	case string, markup:
		if m := r.methodOf[name]; m != nil {
			return &function{call: func(r *run, a actual) any { return m(r, of, a) }}
		}
		foreign = listed(name, "casefold center encode expandtabs format_map isdecimal isidentifier isnumeric "+
			"isprintable istitle ljust maketrans rjust swapcase translate zfill")
	case *dict:
		switch name {
		case "get", "items", "keys", "values":
			return &function{call: func(r *run, a actual) any { return r.dictMethod(of, name, a) }}
		case "clear", "pop", "popitem", "setdefault", "update":
			changing = true
		case "copy", "fromkeys":
			foreign = true
		}
	case *list:
		switch own := name == "count" || name == "index"; {
		case own && of.joins():
			return &function{call: func(r *run, a actual) any { return r.listMethod(of.items, name, a) }}
		case of.kind == listKind:
			changing, foreign = listed(name, "append clear extend insert pop remove reverse sort"), name == "copy"
		case of.kind != tupleKind:
			foreign = otherAttribute(name)
		}
	case bool, int64, *big.Int, float64:
		foreign = listed(name, "as_integer_ratio bit_count bit_length conjugate denominator from_bytes from_number "+
			"fromhex hex imag is_integer numerator real to_bytes")
	case *generator, *function:
		foreign = otherAttribute(name)
	}
	if changing {
		return &undefined{what: "method " + name + " of a " + typeName(of), unsafe: true}
	}
	if foreign {
		r.refuse("attribute %s of a %s", name, typeName(of))
	}
	return nil
}

func listed(name, list string) bool { return slices.Contains(strings.Fields(list), name) }

// otherAttribute reports whether a range, a view, a generator, a macro or a global may
// have an attribute of that name.
func otherAttribute(name string) bool {
	return strings.HasPrefix(name, "_") || strings.HasPrefix(name, "gi_") ||
		listed(name, "count index start step stop isdisjoint mapping close send throw arguments caller catch_kwargs "+
			"catch_varargs explicit_caller name fromkeys mro")
}

// slice returns value[from:to:step]. A bound that the template leaves out is nil.
func (r *run) slice(of any, bounds [3]any) any {
	switch of := of.(type) {
	case *undefined:
		r.undefined(of)
	case string:
		return r.sliceText(of, bounds)
	case markup:
		r.refuse("a slice of a string that is marked as safe")
	case *list:
		switch of.kind {
		case listKind, tupleKind:
			start, step, count := r.bounds(len(of.items), bounds)
			if step == 1 {
				return &list{items: of.items[start : start+count : start+count], kind: of.kind}
			}
			r.make(valueSize * count)
			r.step(count)
			return &list{items: every(of.items, start, step, count), kind: of.kind}
		case rangeKind:
			r.refuse("a slice of a range")
		}
	}
	r.wrong("a slice of a %s", typeName(of))
	return nil
}

func every[T any](items []T, start, step, count int) []T {
	all := make([]T, count)
	for i := range all {
		all[i] = items[start+i*step]
	}
	return all
}

// bounds returns the bounds of a slice of n items: it takes count items from start on.
func (r *run) bounds(n int, bounds [3]any) (start, step, count int) {
	step = 1
	if s, given := r.bound(bounds[2]); given {
		step = s
	}
	if step == 0 {
		r.wrong("a slice with step 0")
	}
	low, high := 0, n
	if step < 0 {
		low, high = -1, n-1
	}
	limit := func(v any, otherwise int) int {
		i, given := r.bound(v)
		if !given {
			return otherwise
		}
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	if step > 0 {
		start = limit(bounds[0], 0)
		count = max(0, limit(bounds[1], n)-start+step-1) / step
		return start, step, count
	}
	start = limit(bounds[0], n-1)
	count = max(0, start-limit(bounds[1], -1)-step-1) / -step
	return start, step, count
}

// maxBound keeps bounds from overflowing; no list or string is as long.
const maxBound = 1 << 40

func (r *run) bound(v any) (i int, given bool) {
	switch v := v.(type) {
	case nil, none:
		return 0, false
	case int64:
		return int(min(max(v, -maxBound), maxBound)), true
	case bool:
		r.refuse("a bool as the bound of a slice")
	case *undefined:
		r.wrong("%s, the bound of a slice, is undefined", v.what)
	}
	r.wrong("a %s as the bound of a slice", typeName(v))
	return 0, false
}

func (r *run) sliceText(s string, bounds [3]any) any {
	r.make(len(s))
	r.step(len(s) / 16)
	if isASCII(s) {
		start, step, count := r.bounds(len(s), bounds)
		if step == 1 {
			return s[start : start+count]
		}
		return string(every([]byte(s), start, step, count))
	}
	characters := []rune(s)
	start, step, count := r.bounds(len(characters), bounds)
	return string(every(characters, start, step, count))
}
