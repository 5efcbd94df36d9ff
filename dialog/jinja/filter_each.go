package jinja

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
