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

// work is an activity that makes progress each second until it stops, and ends
// later. The times are those of a synctest bubble.
type work struct {
	stop, end, stall time.Duration
}

// pulse is what Temporal heard of it: when, and the last progress.
type pulse struct {
	mu   sync.Mutex
	last time.Duration
	seen int
}

func (p *pulse) hear(since time.Time) setup {
	return func(env *testsuite.TestActivityEnvironment) {
		env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.last = time.Since(since)
			_ = details.Get(&p.seen)
		})
	}
}

func (w work) run(t *testing.T) (heard *pulse, cause error) {
	t.Helper()
	began := time.Now()
	heard = &pulse{}
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
	}, 0, heard.hear(began))
	require.NoError(t, err)
	return heard, cause
}

// The SDK passes heartbeats on every half minute at most when no timeout is set.
const throttle = 31 * time.Second

func TestHeartbeatsStopWhenProgressDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := work{stop: 3 * time.Minute, end: 9 * time.Minute, stall: time.Minute}
		heard, cause := w.run(t)
		require.Equal(t, 180, heard.seen)
		require.LessOrEqual(t, heard.last, w.stop+w.stall+throttle)
		require.ErrorContains(t, cause, "no progress for 1m0s", "the work is told to end")
	})
}

func TestHeartbeatsGoOnAsLongAsProgressDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard, cause := work{stop: 9 * time.Minute, end: 9 * time.Minute, stall: time.Minute}.run(t)
		require.GreaterOrEqual(t, heard.last, 9*time.Minute-throttle)
		require.NoError(t, cause)
	})
}

func TestHeartbeatsWithoutALimitGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard, cause := work{stop: time.Minute, end: 9 * time.Minute}.run(t)
		require.GreaterOrEqual(t, heard.last, 9*time.Minute-throttle)
		require.NoError(t, cause)
	})
}
