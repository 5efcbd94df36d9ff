package jinja

import (
	"fmt"
	"time"
)

// Limits on a run. The largest real templates, with long dialogs, need a thousandth of
// them.
const (
	maxSteps   = 5_000_000 // nodes that are evaluated, items that are seen
	maxBytes   = 256 << 20 // of text and lists that are made, the output included
	deepestRun = 5_000     // expressions and calls inside of each other
	deepestSet = 200       // lists and objects inside of each other
)

// run is one rendering.
type run struct {
	*functions
	variables *dict
	now       time.Time
	// alphabet has the characters for which marks in strings stand.
	alphabet []rune
	scope    *scope
	out      []byte
	captured string
	steps    int
	bytes    int
	depth    int
	// pos is the current place in the source, for errors.
	pos int
}

// fault is an error as it is raised, before its offset is turned into a line and a
// column.
type fault struct {
	kind    error
	pos     int
	message string
}

func newFault(kind error, pos int, format string, args ...any) *fault {
	return &fault{kind, pos, fmt.Sprintf(format, args...)}
}

// fail ends parsing or rendering. Parse and Render catch it.
func fail(kind error, pos int, format string, args ...any) {
	panic(newFault(kind, pos, format, args...))
}

// refuse reports, at r.pos, a construct that this package does not know.
func (r *run) refuse(format string, args ...any) {
	fail(ErrUnsupported, r.pos, format, args...)
}

// wrong reports, at r.pos, an error that Python reports, too.
func (r *run) wrong(format string, args ...any) {
	fail(ErrRender, r.pos, format, args...)
}

// undefined reports that a missing value was used.
func (r *run) undefined(u *undefined) {
	if u.unsafe {
		r.wrong("the sandbox hides %s", u.what)
	}
	r.wrong("%s is undefined", u.what)
}

// step counts n steps against the limit of the run.
func (r *run) step(n int) {
	if r.steps += n; r.steps > maxSteps {
		fail(ErrLimit, r.pos, "rendering takes more than %d steps", maxSteps)
	}
}

// make counts memory before it is allocated.
func (r *run) make(bytes int) {
	if r.bytes += bytes; r.bytes > maxBytes || bytes < 0 {
		fail(ErrLimit, r.pos, "rendering needs more than %d MiB", maxBytes>>20)
	}
}

// deep checks how deep lists and objects are nested.
func (r *run) deep(depth int) {
	if depth > deepestSet {
		fail(ErrLimit, r.pos, "lists and objects nest deeper than %d", deepestSet)
	}
}

// value evaluates an expression.
func (r *run) value(e expression) any {
	r.step(1)
	if r.depth++; r.depth > deepestRun {
		fail(ErrLimit, r.pos, "calls and expressions nest deeper than %d", deepestRun)
	}
	v := e.eval(r)
	r.depth--
	return v
}

func (r *run) values(all []expression) []any {
	r.make(valueSize * len(all))
	values := make([]any, len(all))
	for i, e := range all {
		values[i] = r.value(e)
	}
	return values
}

func (r *run) write(s string) {
	r.make(len(s))
	r.out = append(r.out, s...)
}

// statement runs one statement and returns how it ended.
type statement func(r *run) flow

type flow int

const (
	onward flow = iota
	breaking
	continuing
)

// block is a sequence of statements.
type block []statement

// run carries out statements until one of them leaves the body.
func (b block) run(r *run) flow {
	for _, s := range b {
		r.step(1)
		if f := s(r); f != onward {
			return f
		}
	}
	return onward
}

// capture executes statements and returns their output.
func (r *run) capture(body block) (string, flow) {
	before := r.out
	r.out = nil
	f := body.run(r)
	text := string(r.out)
	r.out = before
	return text, f
}

// assign sets a target to a value. If the target is a tuple, the value is unpacked.
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
		r.scope.set(t.name, v)
	}
}

func (r *run) space(t *target) *namespace {
	n, ok := r.lookUp(token{text: t.name, pos: t.pos}).(*namespace)
	if !ok {
		fail(ErrRender, t.pos, "can't assign attribute %s of %s, which is not a namespace", t.attribute, t.name)
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
			fail(ErrRender, t.pos, "too many values for %d names", len(t.parts))
		}
		items = append(items, one)
	}
	if len(items) < len(t.parts) {
		fail(ErrRender, t.pos, "%d values for %d names", len(items), len(t.parts))
	}
	return items
}

// scope holds the variables of one run of a body. A nil value is undefined.
type scope struct {
	outer *scope
	names *names
	home  *activation
	bound []binding
	ended bool
}

type binding struct {
	name  string
	value any
}

// activation is one call of what Jinja compiles to a function of Python: the template, a
// macro, the body of a call, the test of a loop. open are the scopes that are entered in
// it, by their level.
type activation struct{ open map[int]*scope }

// within calls do in a new scope.
func (r *run) within(n *names, do func()) {
	s := r.enter(n, r.scope)
	r.scope = s
	r.begin(s)
	do()
	s.ended = true
	delete(s.home.open, n.level)
	r.scope = s.outer
}

// enter makes a scope.
func (r *run) enter(n *names, outer *scope) *scope {
	s := &scope{outer: outer, names: n}
	if n.function {
		s.home = &activation{}
		return s
	}
	if s.home = outer.home; s.home.open == nil {
		s.home.open = map[int]*scope{}
	}
	s.home.open[n.level] = s
	return s
}

// begin sets the variables of a scope to the values that they have when its body is
// entered.
func (r *run) begin(s *scope) {
	s.bound = s.bound[:0]
	for _, name := range s.names.unset {
		s.bound = append(s.bound, binding{name: name})
	}
	for _, name := range s.names.copied {
		s.bound = append(s.bound, binding{name, r.variable(s.outer, name)})
	}
}

func (s *scope) find(name string) *any {
	for i := range s.bound {
		if s.bound[i].name == name {
			return &s.bound[i].value
		}
	}
	return nil
}

func (s *scope) set(name string, v any) {
	if at := s.find(name); at != nil {
		*at = v
		return
	}
	s.bound = append(s.bound, binding{name, v})
}

// lookUp finds a variable: first in the scopes, then among the caller's variables, then
// among the globals.
func (r *run) lookUp(t token) any {
	v := r.variable(r.scope, t.text)
	switch {
	case v != nil && v != any(missing{}):
		return v
	case r.scope.assumesBound(t.text):
		return missing{}
	}
	return &undefined{what: t.text}
}

// variable returns the value of a name in a scope, or nil if it has none.
//
// A template may keep a macro longer than the body in which it was defined. In Python
// that body's variables have no values then. But Python names them only by the level of
// the body, so the macro sees the variables of a later body of the same level.
func (r *run) variable(s *scope, name string) any {
	for ; s != nil; s = s.outer {
		if s.ended && s.names.owns(name) {
			if later := s.home.open[s.names.level]; later != nil && later.names.owns(name) {
				return r.variable(later, name)
			}
			return nil
		}
		if at := s.find(name); at != nil {
			return *at
		}
	}
	if v, found := r.variables.get(name); found {
		return v
	}
	if call := globalOf(name); call != nil {
		return &function{call: call}
	}
	return nil
}

// assumesBound reports whether the name belongs to a body that always gives it a value.
// Python then does not check that it has one.
func (s *scope) assumesBound(name string) bool {
	for ; s != nil; s = s.outer {
		if s.names.owns(name) {
			return s.names.given[name]
		}
	}
	return false
}

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
