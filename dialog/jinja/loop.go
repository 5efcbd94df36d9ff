package jinja

func (p *parser) loop(t token) statement {
	s := &loop{pos: t.pos, names: p.names()}
	outside, since := p.scope, len(p.mentions)
	s.names.inLoop = true
	s.target = p.target(false, "in")
	s.names.assign(&s.target)
	s.names.give(&s.target)
	p.expect(name, "in")
	s.of = p.tuple(tupleForm{until: []string{"recursive"}})
	if p.skip(name, "if") {
		unknown := len(p.unknown)
		s.tested = p.names()
		s.tested.function = true
		p.scope = s.tested
		s.test = p.expression()
		p.scope = outside
		p.refuse(unknown)
	}
	if r := p.peek(); r.is(name, "recursive") {
		fail(ErrUnsupported, r.pos, "a recursive loop")
	}
	var word string
	inside := len(p.mentions)
	if s.body, word = p.scoped(s.names, "endfor", "else"); p.mentioned("loop", inside) {
		s.names.given["loop"] = true
	}
	if word == "else" {
		s.otherwise = p.names()
		s.fallback, _ = p.scoped(s.otherwise, "endfor")
	}
	if p.assigns("loop", since) {
		fail(ErrSyntax, t.pos, "the body of a loop assigns to the variable loop")
	}
	return s.run
}

// loop is {% for %}. Its body, its test and its fallback, which runs if there are no
// items, each have their own variables.
type loop struct {
	pos            int
	target         target
	of, test       expression
	body, fallback block
	names          *names
	tested         *names
	otherwise      *names // nil if there is no fallback
}

func (s *loop) run(r *run) (f flow) {
	of := r.value(s.of)
	r.pos = s.pos
	c := &loopContext{next: r.items(s, of), length: -1}
	if s.test == nil {
		c.length = r.lengthIfKnown(of)
	}
	empty := true
	r.within(s.names, func() {
		for v, more := c.step(); more; v, more = c.step() {
			r.step(1)
			r.begin(r.scope)
			r.assign(&s.target, v)
			r.scope.set("loop", c)
			f := s.body.run(r)
			if f == breaking {
				break
			}
			// An item whose body ended early, by break or continue, doesn't count, as in
			// Jinja.
			empty = empty && f != onward
		}
	})
	if empty && s.otherwise != nil {
		r.within(s.otherwise, func() { f = s.fallback.run(r) })
	}
	return f
}

// items iterates over the items of a loop that pass its test. An item is tested only when
// the loop reaches it.
func (r *run) items(s *loop, of any) iterator {
	next := r.iterate(of)
	if s.test == nil {
		return next
	}
	around := r.scope
	return func() (item any, more bool) {
		outside := r.scope
		r.scope = around
		defer func() { r.scope = outside }()
		for item, more = next(); more; item, more = next() {
			r.step(1)
			passes := false
			r.within(s.tested, func() {
				r.assign(&s.target, item)
				passes = r.truth(r.value(s.test))
			})
			if passes {
				break
			}
		}
		return item, more
	}
}

// loopContext is the variable loop.
type loopContext struct {
	next                   iterator
	index                  int // of the current item, from 1
	before, current, after any
	length                 int // −1 until it is known
	changed                []any
	everChanged            bool
}

func (c *loopContext) step() (any, bool) {
	v := c.after
	c.after = nil
	if v == nil {
		var more bool
		if v, more = c.next(); !more {
			return nil, false
		}
	}
	c.index++
	c.before, c.current = c.current, v
	return v, true
}

// peek returns the next item, or nil if there is none.
func (c *loopContext) peek() any {
	if c.after == nil {
		c.after, _ = c.next()
	}
	return c.after
}

// count returns the number of items. If it isn't known yet, count reads the rest of the
// items first.
func (c *loopContext) count() int {
	if c.length < 0 {
		var rest []any
		for v, more := c.next(); more; v, more = c.next() {
			rest = append(rest, v)
		}
		c.length = c.index + len(rest)
		if c.after != nil {
			c.length++
		}
		c.next = over(rest)
	}
	return c.length
}

// attribute returns an attribute of loop, or nil if there is no such attribute.
func (c *loopContext) attribute(name string) any {
	switch name {
	case "index":
		return int64(c.index)
	case "index0":
		return int64(c.index - 1)
	case "revindex":
		return int64(c.count() - c.index + 1)
	case "revindex0":
		return int64(c.count() - c.index)
	case "first":
		return c.index == 1
	case "last":
		return c.peek() == nil
	case "length":
		return int64(c.count())
	case "depth":
		return int64(1)
	case "depth0":
		return int64(0)
	case "previtem":
		if c.index == 1 {
			return &undefined{what: "loop.previtem of the first item"}
		}
		return c.before
	case "nextitem":
		if v := c.peek(); v != nil {
			return v
		}
		return &undefined{what: "loop.nextitem of the last item"}
	case "cycle", "changed":
		return &function{call: func(r *run, a actual) any { return c.method(r, name, a) }}
	}
	return nil
}

func (c *loopContext) method(r *run, name string, a actual) any {
	if len(a.named) > 0 {
		r.wrong("loop.%s has no argument %s", name, a.named[0].name)
	}
	if name == "cycle" {
		if len(a.positional) == 0 {
			r.wrong("loop.cycle without arguments")
		}
		return a.positional[(c.index-1)%len(a.positional)]
	}
	if c.everChanged && r.equal(&list{items: c.changed, kind: tupleKind}, &list{items: a.positional, kind: tupleKind}) {
		return false
	}
	c.changed, c.everChanged = a.positional, true
	return true
}
