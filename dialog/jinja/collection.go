package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// collectionFilters returns the filters of lists and objects.
func collectionFilters() definitions {
	return definitions{
		"list": {"", func(r *run, v any, _ []any) any {
			items := r.all(v)
			r.make(valueSize * len(items))
			return &list{items: items, kind: listKind}
		}},
		"join":     {"d? attribute?", (*run).filterJoin},
		"first":    {"", (*run).filterFirst},
		"last":     {"", (*run).filterLast},
		"reverse":  {"", (*run).filterReverse},
		"items":    {"", (*run).filterItems},
		"dictsort": {"case_sensitive? by? reverse?", (*run).filterDictSort},
		"sort":     {"reverse? case_sensitive? attribute?", (*run).filterSort},
		"unique":   {"case_sensitive? attribute?", (*run).filterUnique},
		"min": {"case_sensitive? attribute?", func(r *run, v any, args []any) any {
			return r.extreme("min", "<", v, args)
		}},
		"max": {"case_sensitive? attribute?", func(r *run, v any, args []any) any {
			return r.extreme("max", ">", v, args)
		}},
		"sum":        {"attribute? start?", (*run).filterSum},
		"map":        {lazy, (*run).filterMap},
		"select":     {lazy, picking(false, true)},
		"reject":     {lazy, picking(false, false)},
		"selectattr": {lazy, picking(true, true)},
		"rejectattr": {lazy, picking(true, false)},
	}
}

// getter returns a function that reads a path such as "function.name" in a value.
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

func (r *run) filterJoin(v any, args []any) any {
	between := r.str(otherwise(args[0], ""))
	read := r.getter(args[1])
	var parts []string
	for _, one := range r.all(v) {
		parts = append(parts, r.str(read(one)))
	}
	return r.glue(parts, between)
}

func (r *run) filterFirst(v any, _ []any) any {
	if one, more := r.iterate(v)(); more {
		return one
	}
	return &undefined{what: "the first item of nothing"}
}

func (r *run) filterLast(v any, _ []any) any {
	if _, ok := v.(*generator); ok {
		r.wrong("last of a generator")
	}
	if items := r.all(v); len(items) > 0 {
		return items[len(items)-1]
	}
	return &undefined{what: "the last item of nothing"}
}

func (r *run) filterReverse(v any, _ []any) any {
	if s, ok := v.(string); ok {
		return r.sliceText(s, [3]any{nil, nil, int64(-1)})
	}
	items := slices.Clone(r.all(v))
	r.make(valueSize * len(items))
	slices.Reverse(items)
	if _, ok := v.(*generator); ok {
		return &list{items: items, kind: listKind}
	}
	return &generator{over(items)}
}

func (r *run) filterItems(v any, _ []any) any {
	switch v := v.(type) {
	case *dict:
		return &generator{over(r.view(v, "items").items)}
	case *undefined:
		return &generator{over(nil)}
	}
	// Python raises this error only when the first item is read.
	pos := r.pos
	return &generator{func() (any, bool) {
		fail(ErrRender, pos, "items of a %s", typeName(v))
		return nil, false
	}}
}

// foldCase returns the key by which sorts compare items. Strings are compared without
// regard to case unless sensitive is true.
func (r *run) foldCase(sensitive any) func(any) any {
	exact := r.optional(sensitive)
	return func(v any) any {
		if s, ok := plain(v); ok && !exact {
			return r.lower(r.bare(s))
		}
		return v
	}
}

func (r *run) filterDictSort(v any, args []any) any {
	d, ok := v.(*dict)
	if !ok {
		r.wrong("dictsort of a %s", typeName(v))
	}
	part := slices.Index([]any{"key", "value"}, otherwise(args[1], "key"))
	if part < 0 {
		r.wrong(`dictsort by something else than "key" and "value"`)
	}
	fold := r.foldCase(args[0])
	return r.sort(r.view(d, "items").items, func(v any) any { return fold(v.(*list).items[part]) }, args[2])
}

// sort sorts items. It is stable, also when the order is reversed.
func (r *run) sort(items []any, key func(any) any, reverse any) any {
	type keyed struct{ key, item any }
	all := make([]keyed, len(items))
	r.make(3 * valueSize * len(items))
	for i, one := range items {
		all[i] = keyed{key(one), one}
	}
	reversed := r.optional(reverse)
	slices.SortStableFunc(all, func(a, b keyed) int {
		if reversed {
			a, b = b, a
		}
		return r.order("<", a.key, b.key, 0)
	})
	sorted := make([]any, len(all))
	for i, one := range all {
		sorted[i] = one.item
	}
	return &list{items: sorted, kind: listKind}
}

func (r *run) filterSort(v any, args []any) any {
	if s, ok := args[2].(string); ok && strings.Contains(s, ",") {
		r.refuse("sort by several attributes")
	}
	read, fold := r.getter(args[2]), r.foldCase(args[1])
	// Python compares lists of keys here, so two that are undefined are equal.
	key := func(v any) any { return &list{items: []any{fold(read(v))}, kind: listKind} }
	return r.sort(r.all(v), key, args[0])
}

func (r *run) filterUnique(v any, args []any) any {
	read, fold := r.getter(args[1]), r.foldCase(args[0])
	seen := &dict{}
	return r.lazily(v, false, func() func(any) (any, bool) {
		return func(one any) (any, bool) {
			key := r.key(fold(read(one)))
			if s, ok := key.(string); ok {
				key = r.bare(s)
			}
			found := seen.at(key) >= 0
			seen.put(key, nil)
			return one, !found
		}
	})
}

func (r *run) extreme(name, op string, v any, args []any) any {
	read, fold := r.getter(args[1]), r.foldCase(args[0])
	items := r.all(v)
	if len(items) == 0 {
		return &undefined{what: "the " + name + " of nothing"}
	}
	best := items[0]
	for _, one := range items[1:] {
		if r.compare(op, fold(read(one)), fold(read(best))) {
			best = one
		}
	}
	return best
}

func (r *run) filterSum(v any, args []any) any {
	read := r.getter(args[0])
	total := otherwise(args[1], int64(0))
	for _, one := range r.all(v) {
		one = read(one)
		if _, ok := one.(float64); ok {
			r.refuse("sum of floats") // newer versions of Python round it differently
		}
		total = r.arithmetic("+", total, one)
	}
	return total
}

// filterMap reads an attribute of each item, or applies a filter to it.
func (r *run) filterMap(v any, args []any) any {
	pos := r.pos
	return r.lazily(v, true, func() func(any) (any, bool) {
		change := r.change(args[0].(actual))
		return func(one any) (any, bool) {
			r.pos = pos
			return change(one), true
		}
	})
}

func (r *run) change(a actual) func(any) any {
	if len(a.positional) > 0 {
		apply, rest := r.named("filter", r.filterOf, a)
		return func(one any) any { return apply(r, one, rest) }
	}
	path := a.take("attribute")
	if path == nil {
		r.wrong("map without a filter and without an attribute")
	}
	missing := a.take("default")
	if len(a.named) > 0 {
		r.wrong("map has no argument %s", a.named[0].name)
	}
	read := r.getter(path)
	if omitted(missing) {
		return read
	}
	if s, ok := path.(string); ok && strings.Contains(s, ".") {
		r.refuse("map with a default for a path of attributes")
	}
	return func(one any) any {
		one = read(one)
		if _, ok := one.(*undefined); ok {
			return missing
		}
		return one
	}
}

// named finds the filter or test that the first argument names; rest are the other
// arguments.
func (r *run) named(what string, among map[string]applied, a actual) (apply applied, rest actual) {
	name := r.text(what, a.positional[0])
	if apply = among[name]; apply == nil {
		r.refuse("%s %s", what, name)
	}
	return apply, actual{a.positional[1:], a.named}
}

// picking returns select, reject, selectattr or rejectattr: a filter that keeps the items
// for which a test returns wanted.
func picking(byAttribute, wanted bool) func(*run, any, []any) any {
	return func(r *run, v any, args []any) any {
		pos, a := r.pos, args[0].(actual)
		return r.lazily(v, true, func() func(any) (any, bool) {
			read := func(one any) any { return one }
			if byAttribute {
				if len(a.positional) == 0 {
					r.wrong("the name of the attribute is missing")
				}
				read = r.getter(a.positional[0])
				a.positional = a.positional[1:]
			}
			passes := r.truth
			if len(a.positional) > 0 {
				apply, rest := r.named("test", r.testOf, a)
				passes = func(one any) bool { return r.truth(apply(r, one, rest)) }
			}
			return func(one any) (any, bool) {
				r.pos = pos
				return one, passes(read(one)) == wanted
			}
		})
	}
}

// lazily returns a generator, as in Python: it reads an item of the value only when the
// next item is needed, and returns each item once. The function that begin returns
// changes each item; the generator leaves out the items for which that function returns
// false. If ifAny is true, a value that counts as false has no items.
func (r *run) lazily(v any, ifAny bool, begin func() func(any) (any, bool)) any {
	var next iterator
	var each func(any) (any, bool)
	return &generator{func() (any, bool) {
		if ifAny && !r.truth(v) {
			return nil, false
		}
		if next == nil {
			each = begin()
			next = r.iterate(v)
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
