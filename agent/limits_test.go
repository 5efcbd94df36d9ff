package agent_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/process"
)

// heldUntil returns a function that says how long faults held up an agent: all the time
// until up.
func heldUntil(up *atomic.Bool) func() time.Duration {
	began, held := time.Now(), time.Duration(0)
	return func() time.Duration {
		if !up.Load() {
			held = time.Since(began)
		}
		return held
	}
}

func TestHangEndsTheAgent(t *testing.T) {
	t.Parallel()
	w := newLiveness(t)
	j := job("demo")
	j.Environment, j.Limits.Idle = w.environment(), 50*time.Millisecond
	var up atomic.Bool
	j.Idle = func() time.Duration { // as if it made a model call until it is up
		if up.Load() {
			return time.Hour
		}
		return 0
	}
	end := start(t.Context(), agent.Command{Args: acting("hang"), Scratch: t.TempDir()}, j)
	living := w.await(t, 1)
	up.Store(true)
	got := <-end
	require.NoError(t, got.err)
	require.Equal(t, agent.Hang, got.result.Failure)
	require.Equal(t, "no model call and no output for 50ms", got.result.Message)
	require.True(t, got.result.Failure.Unclear())
	living["hang"].requireDead(t)
}

func TestAgentThatWritesDoesNotHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := process.NewMeter(0, func() {}, nil)
		for range 3 {
			<-time.After(time.Minute)
			require.Equal(t, time.Minute, m.Quiet())
			_, err := m.Write([]byte{1})
			require.NoError(t, err)
			require.Zero(t, m.Quiet())
		}
	})
	j := job("demo")
	j.Limits.Idle = time.Minute
	require.False(t, launch(t, j, "echo").Failed())
}

func TestMemoryLimitEndsAllProcessesOfTheAgent(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells what processes take")
	}
	w := newLiveness(t)
	j := job("demo")
	j.Environment, j.Limits.MemoryBytes = w.environment(), 128<<20
	end := start(t.Context(), agent.Command{Args: acting("eat", "4", "48"), Scratch: t.TempDir()}, j)
	got := <-end // no process alone takes that much
	require.NoError(t, got.err)
	require.Equal(t, agent.MemoryLimit, got.result.Failure)
	require.Regexp(t, `^took \d+ bytes of memory, 134217728 are allowed$`, got.result.Message)
	require.Equal(t, 137, got.result.ExitCode)
}

func TestMemoryThatProcessesShareCountsOnce(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells what processes take")
	}
	w := newLiveness(t)
	j := job("demo")
	j.Environment, j.Limits.MemoryBytes, j.Limits.Time = w.environment(), 704<<20, time.Second
	var up atomic.Bool
	j.Waited = heldUntil(&up) // the second begins when all have it
	end := start(t.Context(), agent.Command{Args: acting("share", "parent"), Scratch: t.TempDir()}, j)
	w.await(t, 6) // 768 MiB if each one's mapping counted, 128 MiB if it counts once
	up.Store(true)
	require.Equal(t, agent.Timeout, (<-end).result.Failure)
}

func TestDaemonIsEndedWithItsAgent(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere what leaves the group is not found")
	}
	w := newLiveness(t)
	j := job("demo")
	j.Environment, j.Limits.Time = w.environment(), time.Millisecond
	var up atomic.Bool
	j.Waited = heldUntil(&up)
	end := start(t.Context(), agent.Command{Args: acting("daemon", "1"), Scratch: t.TempDir()}, j)
	living := w.await(t, 2)
	up.Store(true)
	require.Equal(t, agent.Timeout, (<-end).result.Failure)
	living["parent"].requireDead(t)
	living["daemon"].requireDead(t)
}

// It is not parallel, since it measures what the whole process takes.
func TestGibibyteOfOutputTakesNoMemoryOfTheWorker(t *testing.T) {
	for _, limit := range []int64{0, 900 << 20} {
		j := job("demo")
		j.Limits.OutputBytes = limit
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := launch(t, j, "flood")
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20), "allocated in all, for 1 GiB of output")
		if limit == 0 {
			require.Equal(t, agent.OutputLimit, got.Failure)
			require.Contains(t, got.Message, "its result has 1073741824 bytes, at most 1048576 are possible")
		} else {
			require.Equal(t, agent.OutputLimit, got.Failure)
		}
	}
}
