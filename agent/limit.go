package agent

import (
	"context"
	"errors"
	"time"
)

const (
	// grace is what an agent gets between being asked to end and being ended.
	grace = 2 * time.Second
	// recheck is the shortest wait between two looks at a clock that may stand
	// still.
	recheck = 20 * time.Millisecond
)

var errTimeLimit = errors.New("agent used up its time")

// limited derives a context that ends with errTimeLimit once the agent has used
// up the job's time. A plain deadline would not do: time during which the agent
// was held up by us is given back. The returned function must be called.
func limited(ctx context.Context, job Job) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if job.Limits.Time <= 0 {
		return ctx, func() { cancel(context.Canceled) }
	}
	done := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(done)
		for left := job.Limits.Time; left > 0; left = job.left(began) {
			timer := time.NewTimer(max(left, recheck))
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
		}
		cancel(errTimeLimit)
	}()
	return ctx, func() {
		cancel(context.Canceled)
		<-done
	}
}

func (j Job) left(began time.Time) time.Duration {
	used := time.Since(began)
	if j.Waited != nil {
		used -= j.Waited()
	}
	return j.Limits.Time - used
}
