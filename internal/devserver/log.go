//go:build !serverprocess

package devserver

import (
	"sync/atomic"

	"go.temporal.io/server/common/log/tag"
	"go.uber.org/zap/zapcore"
)

// quietCore passes on what a user of the embedded server can use: warnings and
// errors while it runs.
type quietCore struct {
	zapcore.Core
	silent *atomic.Bool
}

func (c quietCore) Enabled(level zapcore.Level) bool {
	if c.silent.Load() {
		return level >= zapcore.DPanicLevel && c.Core.Enabled(level)
	}
	return level >= zapcore.WarnLevel && c.Core.Enabled(level)
}

func (c quietCore) With(fields []zapcore.Field) zapcore.Core {
	return quietCore{c.Core.With(fields), c.silent}
}

func (c quietCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(entry.Level) {
		return checked
	}
	return checked.AddCore(entry, c)
}

// Write leaves out the place in the server's source that made the entry.
func (c quietCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	kept := make([]zapcore.Field, 0, len(fields))
	for _, f := range fields {
		if f.Key != tag.LoggingCallAtKey {
			kept = append(kept, f)
		}
	}
	entry.Stack = ""
	return c.Core.Write(entry, kept)
}
