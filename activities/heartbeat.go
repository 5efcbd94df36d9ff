package activities

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
)

// heartbeatEvery is how often a long activity says that it lives; the SDK drops
// what is more frequent than its timeout needs.
const heartbeatEvery = time.Second

// beating runs f and sends Temporal what details returns until f ends.
func beating[T any](ctx context.Context, details func() any, f func() (T, error)) (T, error) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(heartbeatEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ctx.Done():
				return
			case <-tick.C:
				activity.RecordHeartbeat(ctx, details())
			}
		}
	})
	defer wg.Wait()
	defer close(stop)
	return f()
}
