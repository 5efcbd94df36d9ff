package memory

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// Floor is how much garbage there may be, in bytes, before a process that Pace was
// called in collects it, however little is in use.
const Floor = 64 << 20

// leastBase is the heap that Go begins with, in bytes.
const leastBase = 4 << 20

// Pace sets the pace of collections until ctx ends, for a process that makes much
// garbage and has little in use: at Go's own pace it would collect many times a second.
// Where the variable GOGC is set, Pace does nothing.
func Pace(ctx context.Context) {
	if os.Getenv("GOGC") == "" {
		paceNext(ctx)
	}
}

// collection is something that the next collection finds unused. It holds a pointer,
// since the collector may keep small things without one together for long.
type collection struct{ _ *collection }

// paceNext sets the pace for what is in use now, and again after the next collection.
func paceNext(ctx context.Context) {
	pacing.Lock()
	defer pacing.Unlock()
	if ctx.Err() != nil {
		debug.SetGCPercent(unchanged)
		return
	}
	debug.SetGCPercent(max(unchanged, int(Floor*unchanged/max(base(), leastBase))))
	runtime.AddCleanup(new(collection), paceNext, ctx)
}

// base is the heap that Go takes percents of: the bytes that the last collection found in use,
// with stacks and globals.
func base() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64() + s[1].Value.Uint64() + s[2].Value.Uint64()
}
