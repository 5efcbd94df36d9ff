package jinja

import (
	"math/big"
	"strings"
	"unicode/utf8"
)

// attribute is value.name: an attribute in Python's sense, which methods are, else
// the item of that name.
func (r *run) attribute(of any, name string) any {
	if v := r.member(of, name); v != nil {
		return v
	}
	if d, is := of.(*dict); is {
		if v, found := d.get(name); found {
			return v
		}
	}
	return r.absent(of, name)
}

// item is value[key]: the item, else the attribute of that name.
func (r *run) item(of, key any) any {
	if u, is := of.(*undefined); is {
		r.undefined(u)
	}
	if v := r.element(of, key); v != nil {
		return v
	}
	if name, is := plain(key); is {
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

// element is the item at a key or an index; nil where there is none.
func (r *run) element(of, key any) any {
	if d, is := of.(*dict); is {
		if one, can := keyOf(key); can {
			v, _ := d.get(one)
			return v
		}
		return nil
	}
	index := toNumber(key)
	i, is := index.(int64)
	if !is {
		return nil
	}
	switch of := of.(type) {
	case *list:
		return at(of.items, i)
	case *tuple:
		return at(of.items, i)
	case string:
		return r.character(of, i)
	case markup:
		r.refuse("a character of a string that is marked as safe")
	case *interval:
		n := of.len()
		if i < 0 {
			i += n
		}
		if i >= 0 && i < n {
			return of.start + i*of.step
		}
	}
	return nil
}

func at(items []any, i int64) any {
	if i < 0 {
		i += int64(len(items))
	}
	if i < 0 || i >= int64(len(items)) {
		return nil
	}
	return items[i]
}

// character is the i-th character of a string, or nil.
func (r *run) character(s string, i int64) any {
	r.step(len(s) / 64)
	n := int64(len(s))
	ascii := isASCII(s)
	if !ascii {
		n = int64(utf8.RuneCountInString(s))
	}
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return nil
	}
	if ascii {
		return s[i : i+1]
	}
	for ; i > 0; i-- {
		_, size := utf8.DecodeRuneInString(s)
		s = s[size:]
	}
	_, size := utf8.DecodeRuneInString(s)
	return s[:size]
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// member is an attribute that the type of a value has; nil where there is none.
func (r *run) member(of any, name string) any {
	switch of := of.(type) {
	case *undefined:
		r.undefined(of)
	case *namespace:
		if v, found := of.get(name); found {
			return v
		}
		return nil
	case *loopContext:
		if strings.HasPrefix(name, "_") {
			r.refuse("attribute %s of loop", name)
		}
		return of.attribute(name)
	}
	switch kindOfAttribute(of, name) {
	case changing:
		return &undefined{what: "method " + name + " of a " + typeName(of), unsafe: true}
	case ours:
		return &method{of, name}
	case foreign:
		r.refuse("attribute %s of a %s", name, typeName(of))
	}
	return nil
}

// attributeKind is that of a name among the attributes that a type has in Python.
type attributeKind int

const (
	nothing  attributeKind = iota
	ours                   // a method that this package knows
	changing               // a method that would change the value: the sandbox hides it
	foreign                // anything else
)

func kindOfAttribute(v any, name string) attributeKind {
	switch v.(type) {
	case string, markup:
		return textAttribute(name)
	case *dict:
		return dictAttribute(name)
	case *list:
		return listAttribute(name)
	case *tuple:
		if name == "count" || name == "index" {
			return ours
		}
	case bool, int64, *big.Int, float64:
		return numberAttribute(name)
	case *interval, *view, *generator, *closure, *builtin, *method:
		return otherAttribute(name)
	}
	return nothing
}

func textAttribute(name string) attributeKind {
	switch name {
	case "casefold", "center", "encode", "expandtabs", "format_map", "isdecimal", "isidentifier", "isnumeric",
		"isprintable", "istitle", "ljust", "maketrans", "rjust", "swapcase", "translate", "zfill":
		return foreign
	case "capitalize", "count", "endswith", "find", "format", "index", "isalnum", "isalpha", "isascii", "isdigit",
		"islower", "isspace", "isupper", "join", "lower", "lstrip", "partition", "removeprefix", "removesuffix",
		"replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith",
		"strip", "title", "upper":
		return ours
	}
	return nothing
}

func dictAttribute(name string) attributeKind {
	switch name {
	case "get", "items", "keys", "values":
		return ours
	case "clear", "pop", "popitem", "setdefault", "update":
		return changing
	case "copy", "fromkeys":
		return foreign
	}
	return nothing
}

func listAttribute(name string) attributeKind {
	switch name {
	case "count", "index":
		return ours
	case "append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort":
		return changing
	case "copy":
		return foreign
	}
	return nothing
}

func numberAttribute(name string) attributeKind {
	switch name {
	case "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes", "from_number",
		"fromhex", "hex", "imag", "is_integer", "numerator", "real", "to_bytes":
		return foreign
	}
	return nothing
}

func otherAttribute(name string) attributeKind {
	switch name {
	case "count", "index", "start", "step", "stop", // of a range
		"isdisjoint", "mapping", // of a view
		"close", "send", "throw", // of a generator, with gi_…
		"arguments", "caller", "catch_kwargs", "catch_varargs", "explicit_caller", "name", // of a macro
		"fromkeys", "mro": // of a global
		return foreign
	}
	if strings.HasPrefix(name, "_") || strings.HasPrefix(name, "gi_") {
		return foreign
	}
	return nothing
}

// slice is value[from:to:step]; nil stands for what is left out.
func (r *run) slice(of any, bounds [3]any) any {
	switch of := of.(type) {
	case *undefined:
		r.undefined(of)
	case string:
		return r.sliceText(of, bounds)
	case markup:
		r.refuse("a slice of a string that is marked as safe")
	case *list:
		return &list{r.sliceItems(of.items, bounds)}
	case *tuple:
		return &tuple{r.sliceItems(of.items, bounds)}
	case *interval:
		r.refuse("a slice of a range")
	}
	r.wrong("a slice of a %s", typeName(of))
	return nil
}

// bounds are those of a slice of n items: it takes count items from start on.
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

// mostBound keeps bounds from overflowing; no list or string is as long.
const mostBound = 1 << 40

func (r *run) bound(v any) (i int, given bool) {
	switch v := v.(type) {
	case nil, none:
		return 0, false
	case int64:
		return int(min(max(v, -mostBound), mostBound)), true
	case bool:
		r.refuse("a bool as the bound of a slice")
	case *undefined:
		r.wrong("%s, the bound of a slice, is undefined", v.what)
	}
	r.wrong("a %s as the bound of a slice", typeName(v))
	return 0, false
}

func (r *run) sliceItems(items []any, bounds [3]any) []any {
	start, step, count := r.bounds(len(items), bounds)
	if step == 1 {
		return items[start : start+count : start+count]
	}
	r.make(valueSize * count)
	r.step(count)
	all := make([]any, count)
	for i := range all {
		all[i] = items[start+i*step]
	}
	return all
}

func (r *run) sliceText(s string, bounds [3]any) any {
	r.make(len(s))
	r.step(len(s) / 16)
	if isASCII(s) {
		start, step, count := r.bounds(len(s), bounds)
		if step == 1 {
			return s[start : start+count]
		}
		all := make([]byte, count)
		for i := range all {
			all[i] = s[start+i*step]
		}
		return string(all)
	}
	characters := []rune(s)
	start, step, count := r.bounds(len(characters), bounds)
	all := make([]rune, count)
	for i := range all {
		all[i] = characters[start+i*step]
	}
	return string(all)
}
