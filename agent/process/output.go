package process

import (
	"io"

	"github.com/fulgurite/fulgurite/trace"
)

// StderrBytes is the most of the end of standard error that is kept.
const StderrBytes = 8 << 10

// Output takes what a program writes, in bounded memory however much that is.
type Output struct {
	*Meter
	result         lastLine
	stderrEnd      headTail
	stdout, stderr headTail
	Stdout, Stderr io.Writer // what the program writes to
}

// NewOutput takes output of at most limit bytes on both outputs together; 0 is no
// limit. Progress is called at each write, exceeded once when it is more.
func NewOutput(limit int64, progress, exceeded func()) *Output {
	printed := headTail{headBytes: 1 << 10, tailBytes: 3 << 10}
	o := &Output{
		Meter: NewMeter(limit, progress, exceeded), stdout: printed, stderr: printed, stderrEnd: headTail{tailBytes: StderrBytes},
	}
	o.Stdout = io.MultiWriter(o.Meter, &o.result, &o.stdout)
	o.Stderr = io.MultiWriter(o.Meter, &o.stderrEnd, &o.stderr)
	return o
}

// LastLine is the last line of standard output that isn't blank.
func (o *Output) LastLine() string { return o.result.text() }

// LinesBefore is how many lines that aren't blank stand before the last one.
func (o *Output) LinesBefore() int { return o.result.before() }

// StderrEnd is the end of standard error.
func (o *Output) StderrEnd() string { return o.stderrEnd.tail() }

// Record is the beginning and the end of both outputs.
func (o *Output) Record() trace.Output {
	return trace.Output{Stdout: o.stdout.text(), Stderr: o.stderr.text()}
}
