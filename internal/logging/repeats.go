// Package logging keeps logs short: a failure that repeats is one line with a count.
package logging

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// Every is how long a failure's repetitions are counted before a line tells their number. While
	// it goes on, the time doubles from line to line, up to longest.
	Every   = 10 * time.Second
	longest = 5 * time.Minute
	// maxCounted is how many failures are counted at once. Others are logged one by one.
	maxCounted = 1000
)

// Repeated is the field with the number of entries that an entry stands for: those like it, apart
// from digits, since the last line about them. The entry itself is the last of them.
const Repeated = "repeated"

// WithoutRepeats returns a core that passes warnings and errors on to another one: the first at
// once, and those like it, while they go on, counted. Entries are alike if logger, level,
// message and fields are, apart from digits, in which attempts differ, and from the ids that
// Temporal gives. A failure with another reason is never hidden.
func WithoutRepeats(core zapcore.Core, every time.Duration) zapcore.Core {
	return &repeats{Core: core, counts: &counts{every: every, of: map[string]*count{}}}
}

type repeats struct {
	zapcore.Core
	context []zapcore.Field
	counts  *counts
}

// counts is shared by the loggers of one core.
type counts struct {
	every time.Duration

	mu sync.Mutex
	of map[string]*count
}

// count is a failure that was logged, and what came since.
type count struct {
	more   int
	entry  zapcore.Entry // the last one, and its fields and core
	fields []zapcore.Field
	core   zapcore.Core
}

// With implements zapcore.Core.
func (r *repeats) With(fields []zapcore.Field) zapcore.Core {
	return &repeats{Core: r.Core.With(fields), context: slices.Concat(r.context, fields), counts: r.counts}
}

// Check implements zapcore.Core.
func (r *repeats) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if r.Enabled(e.Level) {
		return checked.AddCore(e, r)
	}
	return checked
}

// Write implements zapcore.Core.
func (r *repeats) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if e.Level < zapcore.WarnLevel || e.Level > zapcore.ErrorLevel || !r.counts.add(r.key(e, fields), e, fields, r.Core) {
		return r.Core.Write(e, fields) //nolint:wrapcheck // a core adds nothing
	}
	return nil
}

// Sync implements zapcore.Core. It logs what was counted so far.
func (r *repeats) Sync() error {
	r.counts.mu.Lock()
	all := slices.Collect(maps.Values(r.counts.of))
	clear(r.counts.of)
	r.counts.mu.Unlock()
	for _, c := range all {
		c.log()
	}
	return r.Core.Sync() //nolint:wrapcheck // a core adds nothing
}

// key returns what entries that are alike have in common.
func (r *repeats) key(e zapcore.Entry, fields []zapcore.Field) string {
	all := zapcore.NewMapObjectEncoder()
	for _, f := range slices.Concat(r.context, fields) {
		switch f.Key {
		case "WorkflowID", "RunID", "ActivityID": // they may differ in letters, too
		default:
			f.AddTo(all)
		}
	}
	parts := []string{e.Level.String(), e.LoggerName, e.Message}
	for _, name := range slices.Sorted(maps.Keys(all.Fields)) {
		parts = append(parts, name, fmt.Sprint(all.Fields[name]))
	}
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, strings.Join(parts, "\x00"))
}

// add counts an entry, unless it is the first one of its kind.
func (s *counts) add(key string, e zapcore.Entry, fields []zapcore.Field, core zapcore.Core) (counted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.of[key]; c != nil {
		c.more++
		c.entry, c.fields, c.core = e, slices.Clone(fields), core
		return true
	}
	if len(s.of) < maxCounted {
		c := &count{}
		s.of[key] = c
		time.AfterFunc(s.every, func() { s.tell(key, c, s.every) })
	}
	return false
}

// tell logs how often a failure repeated, and forgets it if it did not.
func (s *counts) tell(key string, c *count, after time.Duration) {
	s.mu.Lock()
	told := *c
	switch {
	case s.of[key] != c: // Sync has logged it
		s.mu.Unlock()
		return
	case c.more == 0:
		delete(s.of, key)
	default:
		c.more = 0
		next := min(2*after, max(longest, s.every))
		time.AfterFunc(next, func() { s.tell(key, c, next) })
	}
	s.mu.Unlock()
	told.log()
}

// log logs the last entry, with the number of those that it stands for.
func (c *count) log() {
	if c.more == 0 {
		return
	}
	if checked := c.core.Check(c.entry, nil); checked != nil { // a log may have ended
		checked.Write(append(c.fields, zap.Int(Repeated, c.more))...)
	}
}
