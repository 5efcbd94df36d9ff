// Package terminal is the output of commands. It also defines the errors for a wrong
// command line.
package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/term"

	"github.com/fulgurite/fulgurite/internal/chart"
)

// Terminal is where a command writes.
type Terminal struct {
	Out, Err io.Writer
	TTY      bool // Out is a terminal
	Style    chart.Style
}

// New returns the terminal of a process.
func New(out, err *os.File) *Terminal {
	return &Terminal{Out: out, Err: err, Style: chart.StyleOf(out, os.Getenv), TTY: term.IsTerminal(int(out.Fd()))}
}

// Printf writes to Out.
func (t *Terminal) Printf(format string, args ...any) { fmt.Fprintf(t.Out, format, args...) }

// JSON prints v indented.
func (t *Terminal) JSON(v any) error {
	e := json.NewEncoder(t.Out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Escape writes control characters and invisible ones as Go's escapes: texts of agents
// and models may contain any. Tabs stay.
func Escape(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == '\t' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
	}
	return b.String()
}

// UsageError is a mistake in the command line, not in its execution.
type UsageError struct{ error }

// Usage makes a usage error of err.
func Usage(err error) error { return UsageError{err} }

// Usagef makes a usage error of a text.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }
