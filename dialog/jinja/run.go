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
