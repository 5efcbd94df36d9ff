package agent

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// recheck is the shortest wait between two looks at a clock that may stand still.
const recheck = 20 * time.Millisecond

// LimitError is the cause of a context that ends because the agent went beyond a limit,
// which is its own failure and no fault.
type LimitError struct {
	Failure Failure
	Message string
}

func (e *LimitError) Error() string { return string(e.Failure) + ": " + e.Message }

// limited derives a context that ends with a *LimitError once the agent has used up the
// job's time, or was idle for too long. A plain deadline would not do: time during which
// the agent waited because of our faults does not count. quiet returns how long the
// launcher has seen no sign of life. The returned function must be called.
func limited(ctx context.Context, job Job, quiet func() time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watches sync.WaitGroup
	watch := func(limit time.Duration, used func() time.Duration, over *LimitError) {
		if limit <= 0 {
			return
		}
		watches.Go(func() {
			if outlasts(ctx, limit, used) {
				cancel(over)
			}
		})
	}
	began := time.Now()
	watch(job.Limits.Time, func() time.Duration { return time.Since(began) - job.waited() },
		&LimitError{Timeout, fmt.Sprintf("still running after %s", job.Limits.Time)})
	watch(job.Limits.Idle, func() time.Duration { return min(quiet(), job.idle()) },
		&LimitError{Hang, fmt.Sprintf("no model call and no output for %s", job.Limits.Idle)})
	return ctx, func() {
		cancel(context.Canceled)
		watches.Wait()
	}
}

// outlasts waits until more than the limit is used. It returns false if ctx ends first.
func outlasts(ctx context.Context, limit time.Duration, used func() time.Duration) bool {
	for left := limit; left > 0; left = limit - used() {
		timer := time.NewTimer(max(left, recheck))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
	return true
}
