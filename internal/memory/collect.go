package memory

import (
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
