package process

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/fulgurite/fulgurite/record"
)

// StderrBytes is the most of the end of standard error that is kept.
const StderrBytes = 8 << 10

// Output receives a program's output in bounded memory.
type Output struct {
	*Meter
	result         lastLine
	stderrEnd      headTail
	stdout, stderr headTail
	Stdout, Stderr io.Writer // the writers for the program
}

// NewOutput returns an Output for at most limit bytes on both outputs together; 0 is no
// limit. progress is called at each write, exceeded once when there is more.
func NewOutput(limit int64, progress, exceeded func()) *Output {
	printed := headTail{headBytes: 1 << 10, tailBytes: 3 << 10}
	o := &Output{
		Meter: NewMeter(limit, progress, exceeded), stdout: printed, stderr: printed, stderrEnd: headTail{tailBytes: StderrBytes},
	}
	o.Stdout = io.MultiWriter(o.Meter, &o.result, &o.stdout)
	o.Stderr = io.MultiWriter(o.Meter, &o.stderrEnd, &o.stderr)
	return o
}

// LastLine returns the last line of standard output that isn't blank, and its length in
// bytes. A line of more than record.MaxResultBytes is not kept as a whole.
func (o *Output) LastLine() (line string, length int) { return o.result.text() }

// LinesBefore returns how many lines that aren't blank come before the last one.
func (o *Output) LinesBefore() int { return o.result.before() }

// StderrEnd returns the end of standard error.
func (o *Output) StderrEnd() string { return o.stderrEnd.tail() }

// Record returns the beginning and the end of both outputs.
func (o *Output) Record() record.Output {
	return record.Output{Stdout: o.stdout.text(), Stderr: o.stderr.text()}
}

// headTail keeps the first headBytes and the last tailBytes of its input. One goroutine
// writes to it.
type headTail struct {
	headBytes, tailBytes int

	first   []byte
	last    []byte // the newest bytes after first
	dropped int64  // bytes between them
}

func (h *headTail) Write(p []byte) (int, error) {
	n := len(p)
	if room := h.headBytes - len(h.first); room > 0 {
		took := min(room, len(p))
		h.first, p = append(h.first, p[:took]...), p[took:]
	}
	if surplus := len(h.last) + len(p) - h.tailBytes; surplus > 0 {
		h.dropped += int64(surplus)
		gone := min(surplus, len(h.last))
		h.last = append(h.last[:0], h.last[gone:]...)
		p = p[surplus-gone:]
	}
	h.last = append(h.last, p...)
	return n, nil
}

// text returns the beginning and the end, with a line between them that says how many
// bytes are missing.
func (h *headTail) text() string {
	if h.dropped == 0 {
		return strings.ToValidUTF8(string(h.first)+string(h.last), "\uFFFD")
	}
	// A character that was cut at either side of the gap is left out.
	return fmt.Sprintf("%s\n[%d bytes left out]\n%s", bytes.ToValidUTF8(h.first, nil), h.dropped, h.tail())
}

// tail returns the text after the beginning, without invalid UTF-8, such as a cut
// character at its start.
func (h *headTail) tail() string { return string(bytes.ToValidUTF8(h.last, nil)) }

// lastLine keeps the last line that isn't blank, however much is written. One goroutine
// writes to it.
type lastLine struct {
	last    textLine // the last complete line that isn't blank
	current textLine // the line after it
	lines   int      // complete ones that aren't blank
}

// textLine is a line without white space at its beginning.
type textLine struct {
	text   []byte // its first bytes
	length int    // of all of it
}

// add appends a part of the line.
func (l *textLine) add(part []byte) {
	if l.length == 0 {
		part = bytes.TrimLeft(part, " \t\v\f\r")
	}
	if room := record.MaxResultBytes + 1 - len(l.text); room > 0 {
		l.text = append(l.text, part[:min(room, len(part))]...)
	}
	l.length += len(part)
}

func (l textLine) blank() bool { return len(bytes.TrimSpace(l.text)) == 0 }

func (l *lastLine) Write(p []byte) (int, error) {
	rest := p
	for {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		l.current.add(line)
		if !ended {
			return len(p), nil
		}
		if !l.current.blank() {
			l.last, l.current = l.current, l.last
			l.lines++
		}
		l.current, rest = textLine{text: l.current.text[:0]}, after
	}
}

func (l *lastLine) text() (string, int) {
	line := l.last
	if !l.current.blank() {
		line = l.current
	}
	if line.length > len(line.text) {
		return string(line.text), line.length
	}
	text := string(bytes.TrimSpace(line.text))
	return text, len(text)
}

// before counts the non-blank lines before the last one.
func (l *lastLine) before() int {
	if !l.current.blank() {
		return l.lines
	}
	return max(0, l.lines-1)
}
