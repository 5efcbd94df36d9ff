package workers

import (
	"cmp"
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/interceptor"

	"github.com/fulgurite/fulgurite/activities"
)

// keepAliveEvery is how often an activity is reported to be alive: several times
// within the heartbeat timeout of those that coordinate.
const keepAliveEvery = 2 * time.Second

// keepAlive sends heartbeats for activities that are too short to report progress
// themselves. The heartbeats say only that the worker is alive: an activity that hangs is
// found by its timeout from start to close. Without them, a worker that died during a
// millisecond's work would be noticed only by that timeout, too. keepAlive is silent
// while an activity reports its own progress.
type keepAlive struct {
	interceptor.WorkerInterceptorBase
	every time.Duration // 0 is keepAliveEvery
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (k *keepAlive) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &keptAlive{interceptor.ActivityInboundInterceptorBase{Next: next}, cmp.Or(k.every, keepAliveEvery)}
}

type keptAlive struct {
	interceptor.ActivityInboundInterceptorBase
	every time.Duration
}

// ExecuteActivity implements interceptor.ActivityInboundInterceptor.
func (i *keptAlive) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
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
