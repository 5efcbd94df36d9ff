package memory

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// Floor is how much garbage there may be, in bytes, in a process that called Pace,
// however little is in use.
const Floor = 64 << 20

// leastBase is the heap that Go begins with, in bytes.
const leastBase = 4 << 20

// Pace sets the pace of collections until ctx ends. It is for a process that makes much
// garbage and has little in use, and would collect many times a second at Go's default
// pace. If the variable GOGC is set, Pace does nothing.
func Pace(ctx context.Context) {
	if os.Getenv("GOGC") == "" {
		paceNext(ctx)
	}
}

// collection is an object that the next collection finds unused. It holds a pointer,
// because the collector may keep small objects without pointers for a long time.
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

// base returns the size on which Go's percentage is based: the bytes that the last
// collection found in use, with stacks and globals.
func base() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64() + s[1].Value.Uint64() + s[2].Value.Uint64()
}
