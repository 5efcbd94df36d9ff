package workflows

import (
	"go.temporal.io/sdk/workflow"
)

// concurrently runs f for 0 to n−1, as many at once as limit has slots, and waits for
// all. After the first error it starts no other, cancels those under way, since their
// results could not be used, and returns that error.
func concurrently(ctx workflow.Context, limit workflow.Semaphore, n int, f func(ctx workflow.Context, i int) error) error {
	running, cancel := workflow.WithCancel(ctx)
	defer cancel()
	wg := workflow.NewWaitGroup(ctx)
	var first error
	for i := range n {
		if err := limit.Acquire(running, 1); err != nil {
			if first == nil {
				return err // ctx was cancelled
			}
			break
		}
		wg.Add(1)
		workflow.Go(running, func(ctx workflow.Context) {
			defer wg.Done()
			defer limit.Release(1)
			err := f(ctx, i)
			if err == nil || first != nil {
				return
			}
			first = err
			if ctx.Err() == nil {
				cancel()
			}
		})
	}
	wg.Wait(ctx)
	return first
}
