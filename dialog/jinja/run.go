package jinja

import (
	"fmt"
	"time"
)

// What a run may use. The largest real templates, with long dialogs, take a
// thousandth of it.
const (
	mostSteps  = 5_000_000 // nodes that are evaluated, items that are seen
	mostBytes  = 256 << 20 // of text and lists that are made, the output included
	deepestRun = 5_000     // expressions and calls inside of each other
	deepestSet = 200       // lists and objects inside of each other
)

// run is one rendering.
type run struct {
	variables *dict
	now       time.Time
	frame     *frame
	out       []byte
	captured  string
	steps     int
	bytes     int
	depth     int
	// pos is the place in the source of what is being done, for errors.
	pos int
}

// fault is an error on its way out, before its offset is a line and a column.
type fault struct {
	kind    error
	pos     int
	message string
}

// fail ends parsing or rendering. Parse and Render catch it.
func fail(kind error, pos int, format string, args ...any) {
	panic(&fault{kind, pos, fmt.Sprintf(format, args...)})
}

// fail reports what Python refuses, too.
func (r *run) fail(pos int, format string, args ...any) {
	fail(ErrRender, pos, format, args...)
}

// refuse reports what this package doesn't know; it happens where r.pos is.
func (r *run) refuse(format string, args ...any) {
	fail(ErrUnsupported, r.pos, format, args...)
}

// wrong reports what Python refuses, too; it happens where r.pos is.
func (r *run) wrong(format string, args ...any) {
	fail(ErrRender, r.pos, format, args...)
}

// step counts work.
func (r *run) step(n int) {
	if r.steps += n; r.steps > mostSteps {
		fail(ErrLimit, r.pos, "rendering takes more than %d steps", mostSteps)
	}
}

// make counts memory before it is used.
func (r *run) make(bytes int) {
	if r.bytes += bytes; r.bytes > mostBytes || bytes < 0 {
		fail(ErrLimit, r.pos, "rendering needs more than %d MiB", mostBytes>>20)
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

func (r *run) write(s string) {
	r.make(len(s))
	r.out = append(r.out, s...)
}

// do carries out statements until one of them leaves the body.
func (r *run) do(body block) flow {
	for _, s := range body {
		r.step(1)
		if f := s.exec(r); f != onward {
			return f
		}
	}
	return onward
}

// capture carries out statements and gives what they write.
func (r *run) capture(body block) (string, flow) {
	before := r.out
	r.out = nil
	f := r.do(body)
	text := string(r.out)
	r.out = before
	return text, f
}

// frame holds the variables of one run of a function. A slot that is nil has no
// value: the variable is undefined.
type frame struct {
	slots []any
	outer *frame
}

// location is where a variable is: so many functions outwards, in that slot.
type location struct{ hops, slot int }

func (f *frame) at(p location) *any {
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
	if v := *r.frame.at(e.location); v != nil {
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
		*r.frame.at(t.location) = v
	}
}

func (r *run) space(t *target) *namespace {
	n, is := (*r.frame.at(t.location)).(*namespace)
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
