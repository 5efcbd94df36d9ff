package state

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fulgurite/fulgurite/internal/logging"
)

// Logger returns a logger that writes errors, or with --verbose also information. Without
// --verbose it writes nothing once ctx is done: errors of interrupted work are expected
// then. A failure that repeats is one line with a count.
func (s *Flags) Logger(ctx context.Context, w io.Writer) *zap.Logger {
	enabled := zap.LevelEnablerFunc(func(l zapcore.Level) bool {
		return s.Verbose && l >= zapcore.InfoLevel || l >= zapcore.ErrorLevel && ctx.Err() == nil
	})
	out := zapcore.Lock(zapcore.AddSync(w))
	if !s.Verbose {
		return zap.New(logging.WithoutRepeats(shortCore{LevelEnabler: enabled, out: out}, logging.Every))
	}
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()), out, enabled))
}

// ServerLogger returns the logger of the embedded Temporal server. It is nil, which means
// silent, unless --verbose is given.
func (s *Flags) ServerLogger(ctx context.Context, w io.Writer) *zap.Logger {
	if !s.Verbose {
		return nil
	}
	return s.Logger(ctx, w).Named("temporal")
}

// shortWidth is the length of a line of the log without --verbose, in characters.
const shortWidth = 240

// shortCore writes each entry as one short line for people: what happened, to what, and
// why. With --verbose the log has all fields.
type shortCore struct {
	zapcore.LevelEnabler
	out    zapcore.WriteSyncer
	fields []zapcore.Field
}

// With implements zapcore.Core.
func (b shortCore) With(fields []zapcore.Field) zapcore.Core {
	b.fields = slices.Concat(b.fields, fields)
	return b
}

// Check implements zapcore.Core.
func (b shortCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if b.Enabled(e.Level) {
		return checked.AddCore(e, b)
	}
	return checked
}

// Write implements zapcore.Core.
func (b shortCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	all := zapcore.NewMapObjectEncoder()
	for _, f := range slices.Concat(b.fields, fields) {
		f.AddTo(all)
	}
	find := func(names ...string) (values []string) {
		for _, name := range names {
			if v, ok := all.Fields[name]; ok {
				values = append(values, strings.Join(strings.Fields(fmt.Sprint(v)), " "))
			}
		}
		return values
	}
	text := strings.TrimSuffix(e.Message, ".")
	if e.LoggerName != "" {
		text = e.LoggerName + ": " + text
	}
	// The first names are those of the program, the second those of Temporal's library.
	if of := find("run", "workflow", "activity", "rollout", "version", "queue", "path", "ActivityType", "WorkflowID"); len(of) > 0 {
		text += " (" + strings.Join(of, " of ") + ")"
	}
	if why := find("error", "Error"); len(why) > 0 {
		text += ": " + strings.Join(why, ": ")
	}
	count := ""
	if more := find(logging.Repeated); len(more) > 0 {
		count = " (" + more[0] + " more like it)"
	}
	line := []rune(e.Time.Format(time.TimeOnly) + " " + text)
	if long := shortWidth - len(count); len(line) > long {
		line = append(line[:long-1], '…')
	}
	_, err := b.out.Write([]byte(string(line) + count + "\n"))
	return err
}

// Sync implements zapcore.Core.
func (b shortCore) Sync() error { return b.out.Sync() }
