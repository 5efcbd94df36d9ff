package process

import (
	"io"

	"github.com/fulgurite/fulgurite/trace"
)

// Output takes what a program writes, in bounded memory however much that is.
type Output struct {
	*Meter
	result         lastLine
	complaint      lastBytes
	stdout, stderr headTail
	Stdout, Stderr io.Writer // what the program writes to
}

// NewOutput takes output of at most limit bytes on both outputs together; 0 is no
// limit. Progress is called at each write, exceeded once when it is more.
func NewOutput(limit int64, progress, exceeded func()) *Output {
	o := &Output{Meter: NewMeter(limit, progress, exceeded)}
	o.Stdout = io.MultiWriter(o.Meter, &o.result, &o.stdout)
	o.Stderr = io.MultiWriter(o.Meter, &o.complaint, &o.stderr)
	return o
}

// LastLine is the last line of standard output that isn't blank.
func (o *Output) LastLine() string { return o.result.text() }

// LinesBefore is how many lines that aren't blank stand before the last one.
func (o *Output) LinesBefore() int { return o.result.before() }

// StderrEnd is the end of standard error.
func (o *Output) StderrEnd() string { return o.complaint.text() }

// Record is the beginning and the end of both outputs.
func (o *Output) Record() trace.Output {
	return trace.Output{Stdout: o.stdout.text(), Stderr: o.stderr.text()}
}
