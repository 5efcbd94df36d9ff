package activities

import (
	"context"
	"time"
)

// Hurry lets a worker take that long beyond an agent's own limit. It is no method,
// since those are activities.
func Hurry(r *Runner, ending time.Duration) { r.ending = ending }

// Beating runs f as an activity that tells Temporal of its progress.
func Beating(ctx context.Context, progress func() any, stall time.Duration, f func(context.Context) error) error {
	_, err := beating(ctx, beat{progress: progress, stall: stall}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f(ctx)
	})
	return err
}
