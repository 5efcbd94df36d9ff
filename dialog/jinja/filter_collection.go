package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// collectionFilterOf is the filter of a name that is for lists and objects, or nil.
func collectionFilterOf(name string) applied {
	switch name {
	case "list":
		return func(r *run, v any, a actual) any {
			r.bind("list", a)
			items := r.all(v)
			r.make(valueSize * len(items))
			return &list{items}
		}
	case "join":
		return (*run).filterJoin
	case "first", "last":
		return func(r *run, v any, a actual) any { r.bind(name, a); return r.edge(name, v) }
	case "reverse":
		return (*run).filterReverse
	case "items":
		return (*run).filterItems
	case "dictsort":
		return (*run).filterDictSort
	case "map":
		return (*run).filterMap
	case "select", "reject":
		return func(r *run, v any, a actual) any { return r.pick(v, a, false, name == "select") }
	case "selectattr", "rejectattr":
		return func(r *run, v any, a actual) any { return r.pick(v, a, true, name == "selectattr") }
	case "sort":
		return (*run).filterSort
	case "unique":
		return (*run).filterUnique
	case "min", "max":
		return func(r *run, v any, a actual) any { return r.extreme(name, v, a) }
	case "sum":
		return (*run).filterSum
	}
	return nil
}

// getter reads a path such as "function.name" off a value.
func (r *run) getter(path any) func(any) any {
	var parts []any
	switch path := path.(type) {
	case nil, none:
	case string:
		for _, part := range strings.Split(path, ".") {
			if i, err := strconv.ParseInt(part, 10, 64); err == nil && part[0] != '-' && part[0] != '+' {
				parts = append(parts, i)
			} else {
				parts = append(parts, part)
			}
		}
	case int64:
		parts = []any{path}
	default:
		r.refuse("a %s as the name of an attribute", typeName(path))
	}
	return func(v any) any {
		for _, part := range parts {
			v = r.item(v, part)
		}
		return v
	}
}

func (r *run) filterJoin(v any, a actual) any {
	args := r.bind("join", a, "d?", "attribute?")
	between := ""
	if args[0] != nil {
		between = r.str(args[0])
	}
	read := r.getter(args[1])
	var parts []string
	for _, one := range r.all(v) {
		parts = append(parts, r.str(read(one)))
	}
	return r.glue(parts, between)
}

// edge is the first or the last item.
func (r *run) edge(name string, v any) any {
	if name == "first" {
		if one, more := r.iterate(v)(); more {
			return one
		}
		return &undefined{what: "the first item of nothing"}
	}
	switch v.(type) {
	case *generator:
		r.wrong("last of a %s", typeName(v))
	}
	items := r.all(v)
	if len(items) == 0 {
		return &undefined{what: "the last item of nothing"}
	}
	return items[len(items)-1]
}

func (r *run) filterReverse(v any, a actual) any {
	r.bind("reverse", a)
	if s, is := v.(string); is {
		return r.sliceText(s, [3]any{nil, nil, int64(-1)})
	}
	items := slices.Clone(r.all(v))
	r.make(valueSize * len(items))
	slices.Reverse(items)
	if _, is := v.(*generator); is {
		return &list{items}
	}
	return &generator{over(items)}
}

func (r *run) filterItems(v any, a actual) any {
	r.bind("items", a)
	switch v := v.(type) {
	case *dict:
		return &generator{(&view{v, "items"}).iterate()}
	case *undefined:
		return &generator{over(nil)}
	}
	// Python finds out when the first item is asked for.
	pos := r.pos
	return &generator{func() (any, bool) {
		r.fail(pos, "items of a %s", typeName(v))
		return nil, false
	}}
}

// foldCase is what sorts compare: strings without regard to case, unless asked.
func (r *run) foldCase(sensitive any) func(any) any {
	if r.optional(sensitive) {
		return func(v any) any { return v }
	}
	return func(v any) any {
		if s, is := plain(v); is {
			return r.lower(s)
		}
		return v
	}
}

func (r *run) filterDictSort(v any, a actual) any {
	args := r.bind("dictsort", a, "case_sensitive?", "by?", "reverse?")
	d, is := v.(*dict)
	if !is {
		r.wrong("dictsort of a %s", typeName(v))
	}
	part := 0
	switch args[1] {
	case nil, any("key"):
	case any("value"):
		part = 1
	default:
		r.wrong(`dictsort by something else than "key" and "value"`)
	}
	items := make([]any, len(d.keys))
	for i := range items {
		items[i] = d.pair(i)
	}
	fold := r.foldCase(args[0])
	return r.sort(items, func(v any) any { return fold(v.(*tuple).items[part]) }, r.optional(args[2]))
}

// sort is stable, also when it is reversed.
func (r *run) sort(items []any, key func(any) any, reversed bool) any {
	type keyed struct{ key, item any }
	all := make([]keyed, len(items))
	r.make(3 * valueSize * len(items))
	for i, one := range items {
		all[i] = keyed{key(one), one}
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		if reversed {
			a, b = b, a
		}
		return r.order("<", a.key, b.key, 0)
	})
	if len(all) == 1 {
		r.step(1)
	}
	sorted := make([]any, len(all))
	for i, one := range all {
		sorted[i] = one.item
	}
	return &list{sorted}
}

func (r *run) filterSort(v any, a actual) any {
	args := r.bind("sort", a, "reverse?", "case_sensitive?", "attribute?")
	if s, is := args[2].(string); is && strings.Contains(s, ",") {
		r.refuse("sort by several attributes")
	}
	read, fold := r.getter(args[2]), r.foldCase(args[1])
	// Python compares lists of keys here, so two that are undefined are equal.
	return r.sort(r.all(v), func(v any) any { return &tuple{[]any{fold(read(v))}} }, r.optional(args[0]))
}

func (r *run) filterUnique(v any, a actual) any {
	args := r.bind("unique", a, "case_sensitive?", "attribute?")
	read, fold := r.getter(args[1]), r.foldCase(args[0])
	var next iterator
	seen := &dict{}
	return &generator{func() (any, bool) {
		if next == nil {
			next = r.iterate(v)
		}
		for one, more := next(); more; one, more = next() {
			r.step(1)
			key := r.key(fold(read(one)))
			if _, found := seen.get(key); !found {
				seen.put(key, nil)
				return one, true
			}
		}
		return nil, false
	}}
}

func (r *run) extreme(name string, v any, a actual) any {
	args := r.bind(name, a, "case_sensitive?", "attribute?")
	read, fold := r.getter(args[1]), r.foldCase(args[0])
	items := r.all(v)
	if len(items) == 0 {
		return &undefined{what: "the " + name + " of nothing"}
	}
	best := items[0]
	for _, one := range items[1:] {
		a, b := fold(read(one)), fold(read(best))
		if name == "min" && r.compare("<", a, b) || name == "max" && r.compare(">", a, b) {
			best = one
		}
	}
	return best
}

func (r *run) filterSum(v any, a actual) any {
	args := r.bind("sum", a, "attribute?", "start?")
	read := r.getter(args[0])
	total := args[1]
	if total == nil {
		total = int64(0)
	}
	for _, one := range r.all(v) {
		one = read(one)
		if _, is := one.(float64); is {
			r.refuse("sum of floats") // newer Pythons round it otherwise
		}
		total = r.arithmetic("+", total, one)
	}
	return total
}

// filterMap reads an attribute of each item, or applies a filter to it.
func (r *run) filterMap(v any, a actual) any {
	pos := r.pos
	return r.lazily(v, func() func(any) (any, bool) {
		change := r.change(a)
		return func(one any) (any, bool) {
			r.pos = pos
			return change(one), true
		}
	})
}

func (r *run) change(a actual) func(any) any {
	if len(a.positional) > 0 {
		name := r.text("map", a.positional[0])
		apply := filterOf(name)
		if apply == nil {
			r.refuse("filter %s", name)
		}
		rest := actual{a.positional[1:], a.named}
		return func(one any) any { return apply(r, one, rest) }
	}
	path := a.take("attribute")
	if path == nil {
		r.wrong("map without a filter and without an attribute")
	}
	otherwise := a.take("default")
	if len(a.named) > 0 {
		r.wrong("map has no argument %s", a.named[0].name)
	}
	read := r.getter(path)
	if otherwise == nil || otherwise == any(none{}) {
		return read
	}
	if s, is := path.(string); is && containsDot(s) {
		r.refuse("map with a default for a path of attributes")
	}
	return func(one any) any {
		one = read(one)
		if _, is := one.(*undefined); is {
			return otherwise
		}
		return one
	}
}

func containsDot(s string) bool {
	for i := range len(s) {
		if s[i] == '.' {
			return true
		}
	}
	return false
}

// pick is select, reject, selectattr and rejectattr: it keeps the items for which
// a test gives wanted.
func (r *run) pick(v any, a actual, byAttribute, wanted bool) any {
	pos := r.pos
	return r.lazily(v, func() func(any) (any, bool) {
		read := func(one any) any { return one }
		if byAttribute {
			if len(a.positional) == 0 {
				r.wrong("the name of the attribute is missing")
			}
			read = r.getter(a.positional[0])
			a.positional = a.positional[1:]
		}
		passes := r.picker(a)
		return func(one any) (any, bool) {
			r.pos = pos
			return one, passes(read(one)) == wanted
		}
	})
}

func (r *run) picker(a actual) func(any) bool {
	if len(a.positional) == 0 {
		return r.truth
	}
	name := r.text("select", a.positional[0])
	apply := testOf(name)
	if apply == nil {
		r.refuse("test %s", name)
	}
	rest := actual{a.positional[1:], a.named}
	return func(one any) bool { return r.truth(apply(r, one, rest)) }
}

// lazily gives what each makes of the items of a value, of those for which it says
// true. Everything happens when the items are asked for, and items can be asked for
// once, as with a generator in Python.
func (r *run) lazily(v any, begin func() func(any) (any, bool)) any {
	var next iterator
	var each func(any) (any, bool)
	return &generator{func() (any, bool) {
		if next == nil {
			next = over(nil)
			if r.truth(v) {
				each = begin()
				next = r.iterate(v)
			}
		}
		for one, more := next(); more; one, more = next() {
			r.step(1)
			if changed, keep := each(one); keep {
				return changed, true
			}
		}
		return nil, false
	}}
}
