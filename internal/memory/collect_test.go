package memory_test

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/memory"
)

// objects returns how many bytes the heap holds, including garbage.
func objects() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}

// pace returns the percentage at which garbage is collected.
func pace() int {
	p := debug.SetGCPercent(100)
	debug.SetGCPercent(p)
	return p
}

//nolint:paralleltest // it looks at the heap of the process
func TestWhatWasDroppedIsFreeAtOnceAndLittleGarbageMayFollow(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(pace())
	runtime.GC() // removes the garbage of other tests
	before := objects()
	weights := make([]float32, (memory.Large+memory.Slack)/4)
	memory.Dropped(memory.Large)
	const others = 1 << 20 // allocated and freed elsewhere in the process
	require.GreaterOrEqual(t, objects()-before+others, int64(memory.Large+memory.Slack), "what is in use stays")
	require.Less(t, pace(), 100)
	weights[0]++ // in use until here
	weights = nil
	memory.Dropped(memory.Large - 1)
	require.GreaterOrEqual(t, objects()-before, int64(memory.Large), "little is left to the collector's own pace")
	memory.Dropped(memory.Large)
	require.Less(t, objects()-before, int64(memory.Large))
	require.Equal(t, 100, pace(), "a process without large weights collects as ever")
	_ = weights
}

//nolint:paralleltest // it changes the collector of the process
func TestThePaceOfTheEnvironmentStays(t *testing.T) {
	t.Setenv("GOGC", "70")
	defer debug.SetGCPercent(debug.SetGCPercent(70))
	weights := make([]float32, (memory.Large+memory.Slack)/4)
	memory.Dropped(memory.Large)
	require.Equal(t, 70, pace())
	weights[0]++
}

//nolint:paralleltest // it changes the collector of the process
func TestAProcessWithLittleInUseCollectsWhenThereIsMuchGarbage(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(pace())
	set := func() uint64 { // reads the value without setting it, which would interfere
		s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	collectUntil := func(done func(percent uint64) bool) {
		require.Eventually(t, func() bool { runtime.GC(); return done(set()) }, time.Minute, time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	memory.Pace(ctx)
	collectUntil(func(percent uint64) bool { return percent > 200 })
	kept := make([]byte, 2*memory.Floor)
	collectUntil(func(percent uint64) bool { return percent == 100 })
	kept[0]++ // in use until here
	kept = nil
	collectUntil(func(percent uint64) bool { return percent > 200 })
	cancel()
	collectUntil(func(percent uint64) bool { return percent == 100 })
	_ = kept
}

//nolint:paralleltest // it looks at the collector of the process
func TestPaceLeavesTheEnvironmentItsOwn(t *testing.T) {
	t.Setenv("GOGC", "70")
	defer debug.SetGCPercent(debug.SetGCPercent(70))
	memory.Pace(t.Context())
	runtime.GC()
	require.Equal(t, 70, pace())
}
