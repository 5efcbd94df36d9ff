// Package readable writes lines, numbers of things and times for people: "1 step", "12 steps",
// "2026-11-25 21:30:45 +01:00". Every package that tells such values uses it, so that no
// text says "1 steps", or leaves open in which zone a time is. It is not for texts that
// programs read.
package readable

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// timeLayout ends in the offset from UTC, because names of zones are ambiguous.
const timeLayout = time.DateTime + " -07:00"

// Time returns a time in the zone of this machine.
func Time(at time.Time) string { return In(at, time.Local) }

// In returns a time in a zone.
func In(at time.Time, zone *time.Location) string { return at.In(zone).Format(timeLayout) }

// Count returns a number of things, such as "1 task" or "2 tasks". thing is in the singular.
func Count(n int, thing string) string { return fmt.Sprintf("%d %s", n, Name(n, thing)) }

// Are returns a number of things with what is said of them, such as "1 task is
// quarantined" or "2 tasks are quarantined".
func Are(n int, thing, state string) string {
	return fmt.Sprintf("%s %s %s", Count(n, thing), IsOrAre(n), state)
}

// Were returns a number of things and the verb of what was done to them, such as "1 group
// was" or "2 groups were".
func Were(n int, thing string) string { return Count(n, thing) + " " + WasOrWere(n) }

// WasOrWere returns the verb for what was done to things of that number.
func WasOrWere(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// IsOrAre returns the verb for what things of that number are.
func IsOrAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// Name returns the word for things of that number: thing itself for 1, else its plural.
func Name(n int, thing string) string {
	switch stem, ok := strings.CutSuffix(thing, "y"); {
	case n == 1:
		return thing
	case ok && !strings.HasSuffix(stem, "a") && !strings.HasSuffix(stem, "e") && !strings.HasSuffix(stem, "o"):
		return stem + "ies"
	case strings.HasSuffix(thing, "ch"), strings.HasSuffix(thing, "s"), strings.HasSuffix(thing, "x"):
		return thing + "es"
	}
	return thing + "s"
}

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

// Bytes returns a number of bytes with a fitting unit, such as "1.5 MiB".
func Bytes(n int64) string {
	switch {
	case n < 1<<10:
		return Count(int(n), "byte")
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
