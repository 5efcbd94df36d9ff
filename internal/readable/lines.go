package readable

import (
	"fmt"
	"io"
	"strings"
)

// Lines writes lines of text, without white space at their ends, and keeps the first error.
type Lines struct {
	W   io.Writer
	Err error
}

// Line writes a line, unless a line before it could not be written.
func (l *Lines) Line(format string, args ...any) {
	if l.Err == nil {
		_, l.Err = fmt.Fprintln(l.W, strings.TrimRight(fmt.Sprintf(format, args...), " "))
	}
}
