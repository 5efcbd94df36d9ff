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
