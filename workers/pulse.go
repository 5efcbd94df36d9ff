package workers

import (
	"cmp"
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/interceptor"

	"github.com/fulgurite/fulgurite/activities"
)

// pulseEvery is how often an activity is reported to be alive: several times
// within the heartbeat timeout of those that coordinate.
const pulseEvery = 2 * time.Second

// pulse reports that the worker of an activity lives, for activities that are too
// short to report progress of their own. It tells nothing of the activity: one that
// hangs is found by its time from start to close. But of a worker that died in the
// middle of a millisecond's work nobody else would learn until then. While an activity
// reports its own progress, the pulse is silent.
type pulse struct {
	interceptor.WorkerInterceptorBase
	every time.Duration // 0 is pulseEvery
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (p *pulse) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &pulsing{interceptor.ActivityInboundInterceptorBase{Next: next}, cmp.Or(p.every, pulseEvery)}
}

type pulsing struct {
	interceptor.ActivityInboundInterceptorBase
	every time.Duration
}

// ExecuteActivity implements interceptor.ActivityInboundInterceptor.
func (i *pulsing) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	var p activities.KeepAlive
	ctx = activities.WithKeepAlive(ctx, &p)
	stop := make(chan struct{})
	var beats sync.WaitGroup
	beats.Go(func() {
		tick := time.NewTicker(i.every)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ctx.Done():
				return
			case <-tick.C:
				p.Beat(ctx)
			}
		}
	})
	defer beats.Wait()
	defer close(stop)
	return i.Next.ExecuteActivity(ctx, in)
}
