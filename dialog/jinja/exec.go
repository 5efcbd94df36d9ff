package jinja

func (s *plainText) exec(r *run) flow {
	r.write(s.text)
	return onward
}

func (s *output) exec(r *run) flow {
	v := r.value(s.of)
	r.pos = s.pos
	r.write(r.str(v))
	return onward
}

func (s *assignment) exec(r *run) flow {
	r.spaces(&s.target)
	v := r.value(s.value)
	r.pos = s.pos
	r.assign(&s.target, v)
	return onward
}

func (s *captureAssignment) exec(r *run) flow {
	r.enter(&s.layout)
	text, f := r.capture(s.body)
	if f != onward {
		return f
	}
	var v any = text
	if s.filtered != nil {
		r.captured = text
		v = r.value(s.filtered)
	}
	if s.target.attribute != "" {
		r.space(&s.target)
	}
	r.assign(&s.target, v)
	r.leave(&s.layout)
	return onward
}

func (s *filterBlock) exec(r *run) flow {
	r.enter(&s.layout)
	text, f := r.capture(s.body)
	if f != onward {
		return f
	}
	r.captured = text
	r.write(r.str(r.value(s.filtered)))
	r.leave(&s.layout)
	return onward
}

func (*captured) eval(r *run) any { return r.captured }

func (s *withBlock) exec(r *run) flow {
	r.enter(&s.layout)
	for i, value := range s.values {
		r.assign(&s.targets[i], r.value(value))
	}
	f := r.do(s.body)
	r.leave(&s.layout)
	return f
}

func (s *branches) exec(r *run) flow {
	for i, test := range s.tests {
		if r.truth(r.value(test)) {
			return r.do(s.bodies[i])
		}
	}
	return r.do(s.otherwise)
}

func (s *leave) exec(*run) flow { return s.flow }

func (s *macro) exec(r *run) flow {
	*r.frame.at(s.location) = &closure{s, r.frame}
	return onward
}

func (s *callBlock) exec(r *run) flow {
	body := &closure{s.body, r.frame}
	if s.of == nil {
		r.write(r.invoke(body, actual{}))
		return onward
	}
	of := r.value(s.of.of)
	a := r.given(&s.of.arguments)
	a.named = append(a.named, namedValue{"caller", body})
	r.pos = s.pos
	r.write(r.str(r.call(of, a)))
	return onward
}

func (s *loop) exec(r *run) flow {
	of := r.value(s.of)
	r.pos = s.pos
	items := r.items(s, of)
	var c *loopContext
	if s.extended {
		c = &loopContext{next: items, length: -1}
		if s.test == nil {
			c.length = r.lengthIfKnown(of)
		}
		items = c.step
	}
	empty := true
	for v, more := items(); more; v, more = items() {
		r.step(1)
		r.assign(&s.target, v)
		if c != nil {
			*r.frame.at(s.special) = c
		}
		r.enter(&s.layout)
		f := r.do(s.body)
		if f == breaking {
			break
		}
		// An item that was left or continued early doesn't count, as in Jinja.
		empty = empty && f != onward
	}
	r.leave(&s.layout)
	if empty {
		r.enter(&s.fallbackLayout)
		f := r.do(s.fallback)
		r.leave(&s.fallbackLayout)
		return f
	}
	return onward
}

// items are those of a loop that pass its test. The test of one is made when the
// loop comes to it.
func (r *run) items(s *loop, of any) iterator {
	next := r.iterate(of)
	if s.test == nil {
		return next
	}
	f := &frame{slots: make([]any, s.testSlots), outer: r.frame}
	entered := false
	return func() (any, bool) {
		outside := r.frame
		r.frame = f
		defer func() { r.frame = outside }()
		if !entered {
			entered = true
			r.enter(&s.testLayout)
		}
		for v, more := next(); more; v, more = next() {
			r.step(1)
			r.assign(&s.testTarget, v)
			if r.truth(r.value(s.test)) {
				return v, true
			}
		}
		return nil, false
	}
}

// loopContext is the variable loop.
type loopContext struct {
	next                   iterator
	index                  int // of the current item, from 1
	before, current, after any
	length                 int // −1: not known yet
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

// peek gives the next item, or nil.
func (c *loopContext) peek() any {
	if c.after == nil {
		c.after, _ = c.next()
	}
	return c.after
}

// count gives the number of items. Where it isn't known the rest is seen first.
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

// attribute gives an attribute of loop; nil where there is none.
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
		return &method{c, name}
	}
	return nil
}

func (r *run) loopMethod(c *loopContext, name string, a actual) any {
	if len(a.named) > 0 {
		r.wrong("loop.%s has no argument %s", name, a.named[0].name)
	}
	if name == "cycle" {
		if len(a.positional) == 0 {
			r.wrong("loop.cycle without arguments")
		}
		return a.positional[(c.index-1)%len(a.positional)]
	}
	if c.everChanged && r.equal(&tuple{c.changed}, &tuple{a.positional}) {
		return false
	}
	c.changed, c.everChanged = a.positional, true
	return true
}
