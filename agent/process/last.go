package process

import (
	"bytes"

	"github.com/fulgurite/fulgurite/internal/truncate"
)

const (
	// LineBytes is the most of the last line that is kept.
	LineBytes = 64 << 10
	// StderrBytes is the most of the end of standard error that is kept.
	StderrBytes = 8 << 10
)

// lastLine keeps the last line with anything in it, however much is written.
// It is written to by one goroutine.
type lastLine struct {
	last    []byte // the last complete line that isn't blank
	current []byte // what has come of the line after it
	lines   int    // complete ones that aren't blank
}

func (l *lastLine) Write(p []byte) (int, error) {
	rest := p
	for {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		if room := LineBytes + 1 - len(l.current); room > 0 {
			l.current = append(l.current, line[:min(room, len(line))]...)
		}
		if !ended {
			return len(p), nil
		}
		if len(bytes.TrimSpace(l.current)) > 0 {
			l.last, l.current = l.current, l.last
			l.lines++
		}
		l.current, rest = l.current[:0], after
	}
}

func (l *lastLine) text() string {
	line := bytes.TrimSpace(l.current)
	if len(line) == 0 {
		line = bytes.TrimSpace(l.last)
	}
	return truncate.Head(string(line), LineBytes)
}

// before is how many lines that aren't blank stand before the one that is the text.
func (l *lastLine) before() int {
	if len(bytes.TrimSpace(l.current)) > 0 {
		return l.lines
	}
	return max(0, l.lines-1)
}

// lastBytes keeps the end of what is written. It is written to by one goroutine.
type lastBytes struct {
	kept []byte
}

func (l *lastBytes) Write(p []byte) (int, error) {
	if len(p) > StderrBytes {
		l.kept = append(l.kept[:0], p[len(p)-StderrBytes:]...)
		return len(p), nil
	}
	if surplus := len(l.kept) + len(p) - StderrBytes; surplus > 0 {
		l.kept = append(l.kept[:0], l.kept[surplus:]...)
	}
	l.kept = append(l.kept, p...)
	return len(p), nil
}

// text drops a rune that was cut at the start, and all else that isn't UTF-8.
func (l *lastBytes) text() string {
	return truncate.Tail(string(bytes.ToValidUTF8(l.kept, nil)), StderrBytes)
}
