package memory

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// Large is the least that Dropped collects, in bytes: the weights of a model of
	// 16 million parameters.
	Large = 64 << 20
	// Slack is how much garbage there may be, in bytes, unless as much again is in use.
	Slack = 256 << 20
	// leastPercent bounds how often a process with very large weights collects.
	leastPercent = 5
	unchanged    = 100 // Go's default
)

var pacing sync.Mutex // one changes the pace at a time

// Dropped says that so many bytes came out of use: if that is a lot, their memory is
// free for what comes next when it returns, and the pace is set for what is left.
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

// live is the memory in use after the last collection, in bytes.
func live() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// percent is how much garbage there may be, in percent of what is in use.
func percent(live uint64) int {
	if live <= Slack {
		return unchanged
	}
	return max(leastPercent, int(Slack*unchanged/live))
}
