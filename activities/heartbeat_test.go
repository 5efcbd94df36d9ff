package activities_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"

	"github.com/fulgurite/fulgurite/activities"
)

// work is an activity that makes progress each second until stop, and returns at end. The
// times are those of a synctest bubble.
type work struct {
	stop, end, stall time.Duration
}

// heartbeats is what Temporal receives of an activity. The environment may call
// its listener after the activity has ended, so the tests read it by latest.
type heartbeats struct {
	mu sync.Mutex
	heartbeat
}

// heartbeat is the time of a heartbeat's arrival and the progress that it reported.
type heartbeat struct {
	at       time.Duration
	progress int
}

func (h *heartbeats) receive(since time.Time) setup {
	return func(env *testsuite.TestActivityEnvironment) {
		env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.at = time.Since(since)
			_ = details.Get(&h.progress)
		})
	}
}

// latest returns the heartbeat that arrived last.
func (h *heartbeats) latest() heartbeat {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heartbeat
}

func (w work) run(t *testing.T) (last heartbeat, cause error) {
	t.Helper()
	began := time.Now()
	received := &heartbeats{}
	_, err := do[bool](t, func(ctx context.Context, _ int) (bool, error) {
		var steps atomic.Int64
		return true, activities.Beating(ctx, func() any { return steps.Load() }, w.stall, func(ctx context.Context) error {
			for time.Since(began) < w.end {
				<-time.After(time.Second)
				if time.Since(began) <= w.stop {
					steps.Add(1)
				}
			}
			cause = context.Cause(ctx)
			return nil
		})
	}, 0, received.receive(began))
	require.NoError(t, err)
	return received.latest(), cause
}

// The SDK sends a heartbeat at most every half minute if no timeout is set.
const throttle = 31 * time.Second

func TestHeartbeatsStopWhenProgressDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := work{stop: 3 * time.Minute, end: 9 * time.Minute, stall: time.Minute}
		last, cause := w.run(t)
		require.Equal(t, 180, last.progress)
		require.LessOrEqual(t, last.at, w.stop+w.stall+throttle)
		require.ErrorContains(t, cause, "no progress for 1m0s", "the work is told to end")
	})
}

func TestHeartbeatsGoOnAsLongAsProgressDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last, cause := work{stop: 9 * time.Minute, end: 9 * time.Minute, stall: time.Minute}.run(t)
		require.GreaterOrEqual(t, last.at, 9*time.Minute-throttle)
		require.NoError(t, cause)
	})
}

func TestHeartbeatsWithoutALimitGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last, cause := work{stop: time.Minute, end: 9 * time.Minute}.run(t)
		require.GreaterOrEqual(t, last.at, 9*time.Minute-throttle)
		require.NoError(t, cause)
	})
}

// If it were not silent, a running worker would send heartbeats for an activity that
// makes no progress.
func TestTheKeepAliveIsSilentWhileAnActivityReportsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall, hangs, after = time.Minute, 4 * time.Minute, 3 * time.Minute
		began, received := time.Now(), &heartbeats{}
		var whileHanging heartbeat
		_, err := do[bool](t, func(ctx context.Context, _ int) (bool, error) {
			var p activities.KeepAlive
			ctx = activities.WithKeepAlive(ctx, &p)
			ended := make(chan struct{})
			var beats sync.WaitGroup
			beats.Go(func() {
				for {
					select {
					case <-ended:
						return
					case <-time.After(2 * time.Second):
						p.Beat(ctx)
					}
				}
			})
			defer beats.Wait()
			defer close(ended)
			err := activities.Beating(ctx, func() any { return 7 }, stall, func(context.Context) error {
				<-time.After(hangs)
				return nil
			})
			whileHanging = received.latest()
			<-time.After(after)
			return true, err
		}, 0, received.receive(began))
		require.NoError(t, err)
		require.LessOrEqual(t, whileHanging.at, stall+throttle)
		last := received.latest()
		require.Greater(t, last.at, hangs+after-throttle, "and speaks again when the activity doesn't")
		require.Equal(t, 7, last.progress, "with what it said last")
	})
}
