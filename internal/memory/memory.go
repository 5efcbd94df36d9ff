// Package memory controls Go's garbage collector. It keeps a process with large weights
// from growing with garbage, and a process with little memory in use from collecting all
// the time.
//
// Before it collects, Go's collector lets garbage grow to the size of what is in use: a
// process with 3 GB of weights grows to 6 GB, although a step makes only a few hundred
// megabytes of garbage. Code that drops weights therefore calls [Dropped]. From then on,
// garbage is collected when it reaches [Slack], however much is in use. This costs
// little, because the collector does not look into arrays of numbers.
//
// For less than [Large], Dropped does nothing. If the variable GOGC is set, it determines
// the pace. Results never depend on any of this.
//
// A gateway has some megabytes in use and makes as many megabytes of garbage in a tenth
// of a second, and each collection scans the stacks of all its goroutines. After a call
// of [Pace] it collects when there are 64 MB of garbage.
//
// [Total] is the machine's memory, and [Limit] is how much of it processes may take in a
// container.
package memory

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// Large is the least number of bytes for which Dropped does anything: the weights of
	// a model with 16 million parameters.
	Large = 64 << 20
	// Slack is how much garbage there may be, in bytes, unless less than that is in use.
	Slack = 256 << 20
	// leastPercent bounds how often a process with very large weights collects.
	leastPercent = 5
	unchanged    = 100 // Go's default
)

var pacing sync.Mutex // only one goroutine at a time changes the pace

// Dropped tells the package that this many bytes are no longer in use. If they are many,
// their memory is free when it returns, and the pace of collections is set for what is
// still in use.
func Dropped(bytes int64) {
	if bytes < Large {
		return
	}
	pacing.Lock()
	defer pacing.Unlock()
	runtime.GC()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent(live()))
	}
}

// live returns how many bytes the last collection found in use.
func live() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// percent returns how much garbage there may be, in percent of what is in use.
func percent(live uint64) int {
	if live <= Slack {
		return unchanged
	}
	return max(leastPercent, int(Slack*unchanged/live))
}

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

// Limit returns how much memory processes may take here, in bytes: the machine's memory,
// or the limit of the surrounding container if that is less. It returns 0 if neither is
// known.
func Limit() int64 {
	total, limit := Total(), containerLimit()
	if total == 0 || limit > 0 && limit < total {
		return limit
	}
	return total
}
