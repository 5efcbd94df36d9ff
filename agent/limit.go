package agent

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// grace is what an agent gets between being asked to end and being ended.
	grace = 2 * time.Second
	// recheck is the shortest wait between two looks at a clock that may stand
	// still.
	recheck = 20 * time.Millisecond
)

// exceeded is the cause of a context that ends since the agent went beyond a
// limit: its own failure, and no fault.
type exceeded struct {
	failure Failure
	message string
}

func (e *exceeded) Error() string { return string(e.failure) + ": " + e.message }

// limited derives a context that ends with an *exceeded once the agent has used up
// the job's time, or was idle for too long. A plain deadline would not do: time
// during which the agent was held up by us is given back. Quiet is how long the
// launcher has seen no sign of life. The returned function must be called.
func limited(ctx context.Context, job Job, quiet func() time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watches sync.WaitGroup
	watch := func(limit time.Duration, used func() time.Duration, over *exceeded) {
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
		&exceeded{Timeout, fmt.Sprintf("still running after %s", job.Limits.Time)})
	watch(job.Limits.Idle, func() time.Duration { return min(quiet(), job.idle()) },
		&exceeded{Hang, fmt.Sprintf("no model call and no output for %s", job.Limits.Idle)})
	return ctx, func() {
		cancel(context.Canceled)
		watches.Wait()
	}
}

// outlasts waits until more than the limit is used. It is false if ctx ends first.
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

// pause is false if ctx ended meanwhile.
func pause(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
