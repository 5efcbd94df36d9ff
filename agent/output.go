package agent

import (
	"bytes"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fulgurite/fulgurite/internal/truncate"
)

// meter adds up what a command wrote to both its outputs, and calls over once
// when that is more than the limit. A limit of 0 is none.
type meter struct {
	limit    int64
	began    time.Time
	written  atomic.Int64
	last     atomic.Int64 // when it wrote last, in nanoseconds after began
	once     sync.Once
	over     func()
	progress func()
}

func (m *meter) add(n int) {
	m.progress()
	m.last.Store(int64(time.Since(m.began)))
	m.written.Add(int64(n))
	if m.exceeded() {
		m.once.Do(m.over)
	}
}

func (m *meter) exceeded() bool { return m.limit > 0 && m.written.Load() > m.limit }

// quiet is how long nothing has been written.
func (m *meter) quiet() time.Duration { return time.Since(m.began) - time.Duration(m.last.Load()) }

// lastLine keeps the last line with anything in it, however much is written.
// It is written to by one goroutine.
type lastLine struct {
	meter   *meter
	last    []byte // the last complete line that isn't blank
	current []byte // what has come of the line after it
	lines   int    // complete ones that aren't blank
}

func (l *lastLine) Write(p []byte) (int, error) {
	l.meter.add(len(p))
	rest := p
	for {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		if room := resultBytes + 1 - len(l.current); room > 0 {
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
	return truncate.Head(string(line), resultBytes)
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
	meter *meter
	kept  []byte
}

func (l *lastBytes) Write(p []byte) (int, error) {
	l.meter.add(len(p))
	if len(p) > tailBytes {
		l.kept = append(l.kept[:0], p[len(p)-tailBytes:]...)
		return len(p), nil
	}
	if surplus := len(l.kept) + len(p) - tailBytes; surplus > 0 {
		l.kept = append(l.kept[:0], l.kept[surplus:]...)
	}
	l.kept = append(l.kept, p...)
	return len(p), nil
}

// text drops a rune that was cut at the start, and all else that isn't UTF-8.
func (l *lastBytes) text() string {
	return truncate.Tail(string(bytes.ToValidUTF8(l.kept, nil)), tailBytes)
}
