package jinja

import "slices"

// resolver gives each variable of a tree its location and each body its layout.
type resolver struct {
	// asked are the names that are looked up in what the caller gives.
	asked map[string]bool
	// soft says that what is resolved need not be run: it is in an "if". There, as in
	// Python, an unknown filter is an error only when it is used.
	soft bool
	// unsure says that parameters may not have a value yet: it is in a default.
	unsure bool
}

// resolve goes through a whole template.
func resolve(body block) (root layout, slots int, asked []string) {
	r := resolver{asked: map[string]bool{}}
	f := &function{slots: map[identity]int{}}
	s := newSymbols(nil, f)
	s.block(body)
	root = r.layout(s)
	r.block(body, s)
	return root, len(f.slots), sorted(r.asked)
}

// layout is complete when the names of the scope are.
func (r resolver) layout(s *symbols) layout {
	var l layout
	for _, id := range s.order {
		one := s.loads[id]
		if one.origin == lookedUp {
			r.asked[one.name] = true
		}
		l.entries = append(l.entries, entry{s.function.slot(id), one})
	}
	return l
}

func (r resolver) expressions(s *symbols, all ...expression) {
	for _, e := range all {
		if e == nil {
			continue
		}
		inside := r
		switch v := e.(type) {
		case *variable:
			if v.location = s.location(v.name); v.slot < 0 {
				fail(ErrUnsupported, v.pos, "variable %s in this place", v.name)
			}
			v.assigned = !r.unsure && s.given(v.name)
		case *conditional:
			inside.soft = true
		case *filter:
			if v.apply == nil && !r.soft {
				fail(ErrUnsupported, v.pos, "filter %s", v.name)
			}
		case *test:
			if v.apply == nil && !r.soft {
				fail(ErrUnsupported, v.pos, "test %s", v.name)
			}
		}
		inside.expressions(s, e.operands()...)
	}
}

func (r resolver) target(t *target, s *symbols) {
	for i := range t.parts {
		r.target(&t.parts[i], s)
	}
	if !t.tuple {
		t.location = s.location(t.name)
	}
}

func (r resolver) block(body block, s *symbols) {
	for _, one := range body {
		switch n := one.(type) {
		case *output:
			r.expressions(s, n.of)
		case *assignment:
			r.expressions(s, n.value)
			r.target(&n.target, s)
		case *branches:
			inside := r
			inside.soft = true
			inside.expressions(s, n.tests...)
			for _, body := range n.bodies {
				inside.block(body, s)
			}
			inside.block(n.otherwise, s)
		case *leave:
			if !s.inLoop {
				fail(ErrSyntax, n.pos, "there is no loop to leave or to continue")
			}
		default:
			r.scoped(one, s)
		}
	}
}

// scoped resolves statements whose body has a scope of its own.
func (r resolver) scoped(one statement, s *symbols) {
	outside := r
	r.soft = false
	switch n := one.(type) {
	case *captureAssignment:
		inner := newSymbols(s, s.function)
		inner.block(n.body)
		n.layout = r.layout(inner)
		r.block(n.body, inner)
		r.expressions(inner, n.filtered)
		r.target(&n.target, s)
	case *filterBlock:
		inner := newSymbols(s, s.function)
		inner.block(n.body)
		inner.expressions(n.filtered)
		n.layout = r.layout(inner)
		r.block(n.body, inner)
		r.expressions(inner, n.filtered)
	case *withBlock:
		inner := newSymbols(s, s.function)
		for _, t := range n.targets {
			inner.target(t, true)
		}
		inner.block(n.body)
		n.layout = r.layout(inner)
		outside.expressions(s, n.values...)
		for i := range n.targets {
			r.target(&n.targets[i], inner)
		}
		r.block(n.body, inner)
	case *loop:
		outside.expressions(s, n.of)
		r.loop(n, s)
	case *macro:
		r.macro(n, s)
		n.location = s.location(n.name)
	case *callBlock:
		r.macro(n.body, s)
		if n.of != nil {
			outside.expressions(s, n.of)
		}
	}
}

const loopName = "loop"

func (r resolver) loop(n *loop, s *symbols) {
	if stores(n.target, n.body, n.fallback) {
		fail(ErrSyntax, n.pos, "the body of a loop assigns to the variable loop")
	}
	inner := newSymbols(s, s.function)
	inner.inLoop = true
	n.extended = undeclared(n.body, loopName)
	if n.extended {
		inner.declare(loopName)
	}
	inner.target(n.target, true)
	inner.block(n.body)
	if n.extended {
		n.special = inner.location(loopName)
	}
	if n.test != nil {
		r.loopTest(n, s)
	}
	n.layout = r.layout(inner)
	r.target(&n.target, inner)
	r.block(n.body, inner)
	last := newSymbols(s, s.function)
	last.block(n.fallback)
	n.fallbackLayout = r.layout(last)
	r.block(n.fallback, last)
}

func (r resolver) loopTest(n *loop, s *symbols) {
	f := &function{outer: s.function, slots: map[identity]int{}}
	inner := newSymbols(s, f)
	inner.target(n.target, true)
	inner.expressions(n.test)
	n.testLayout = r.layout(inner)
	n.testTarget = n.target.clone()
	r.target(&n.testTarget, inner)
	r.expressions(inner, n.test)
	n.testSlots = len(f.slots)
}

func (t target) clone() target {
	t.parts = slices.Clone(t.parts)
	for i := range t.parts {
		t.parts[i] = t.parts[i].clone()
	}
	return t
}

func (r resolver) macro(n *macro, s *symbols) {
	for _, special := range []string{"varargs", "kwargs"} {
		if undeclared(n.body, special) {
			fail(ErrUnsupported, n.pos, "a macro that reads %s", special)
		}
	}
	f := &function{outer: s.function, slots: map[identity]int{}}
	inner := newSymbols(s, f)
	analyze := func() {
		for _, p := range n.parameters {
			inner.declare(p.name)
		}
		for _, p := range n.parameters {
			inner.expressions(p.fallback)
		}
		inner.block(n.body)
	}
	analyze()
	n.caller = -1
	if undeclared(n.body, "caller") {
		inner.declare("caller")
		n.caller = inner.location("caller").slot
	}
	analyze()
	n.layout = r.layout(inner)
	for i := range n.parameters {
		p := &n.parameters[i]
		p.slot = inner.location(p.name).slot
		unsure := r
		unsure.unsure = true
		unsure.expressions(inner, p.fallback)
	}
	r.block(n.body, inner)
	n.slots = len(f.slots)
}
