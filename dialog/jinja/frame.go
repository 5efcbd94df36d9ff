package jinja

// frame holds the variables of one run of a function. A slot that is nil has no
// value: the variable is undefined.
type frame struct {
	slots []any
	outer *frame
}

// place is where a variable is: so many functions outwards, in that slot.
type place struct{ hops, slot int }

func (f *frame) at(p place) *any {
	for range p.hops {
		f = f.outer
	}
	return &f.slots[p.slot]
}

// layout says what the variables of a body are when it is entered.
type layout struct{ entries []entry }

type entry struct {
	slot int
	load
}

func (r *run) enter(l *layout) {
	for i := range l.entries {
		e := &l.entries[i]
		switch e.origin {
		case lookedUp:
			r.frame.slots[e.slot] = r.lookUp(e.name)
		case copied:
			r.frame.slots[e.slot] = *r.frame.at(e.outer)
		case unset:
			r.frame.slots[e.slot] = nil
		}
	}
}

func (r *run) leave(l *layout) {
	for i := range l.entries {
		r.frame.slots[l.entries[i].slot] = nil
	}
}

// lookUp finds a name in what the caller gave and in the globals.
func (r *run) lookUp(name string) any {
	if v, found := r.variables.get(name); found {
		return v
	}
	if isGlobal(name) {
		return &builtin{name}
	}
	return nil
}

func (e *variable) eval(r *run) any {
	if v := *r.frame.at(e.place); v != nil {
		return v
	}
	if e.assigned {
		// Python would show its own mark for what is missing.
		fail(ErrUnsupported, e.pos, "variable %s of a loop that has ended", e.name)
	}
	return &undefined{what: e.name}
}

// assign gives a target a value; values are unpacked for a tuple.
func (r *run) assign(t *target, v any) {
	switch {
	case t.tuple:
		items := r.unpack(t, v)
		for i := range t.parts {
			r.assign(&t.parts[i], items[i])
		}
	case t.attribute != "":
		r.space(t).set(r, t.attribute, v)
	default:
		*r.frame.at(t.place) = v
	}
}

func (r *run) space(t *target) *namespace {
	n, is := (*r.frame.at(t.place)).(*namespace)
	if !is {
		r.fail(t.pos, "can't assign attribute %s of %s, which is no namespace", t.attribute, t.name)
	}
	return n
}

// spaces checks all namespaces in a target before anything is assigned.
func (r *run) spaces(t *target) {
	for i := range t.parts {
		r.spaces(&t.parts[i])
	}
	if t.attribute != "" {
		r.space(t)
	}
}

func (r *run) unpack(t *target, v any) []any {
	next := r.iterate(v)
	items := make([]any, 0, len(t.parts))
	for one, more := next(); more; one, more = next() {
		if len(items) == len(t.parts) {
			r.fail(t.pos, "too many values for %d names", len(t.parts))
		}
		items = append(items, one)
	}
	if len(items) < len(t.parts) {
		r.fail(t.pos, "%d values for %d names", len(items), len(t.parts))
	}
	return items
}
