package activities

import (
	"context"
	"time"
)

// Hurry sets how long a worker may take beyond an agent's own limit. It is not a method,
// because methods are registered as activities.
func Hurry(r *Runner, ending time.Duration) { r.ending = ending }

// Beating runs f as an activity that reports its progress to Temporal.
func Beating(ctx context.Context, progress func() any, stall time.Duration, f func(context.Context) error) error {
	_, err := beating(ctx, beat{progress: progress, stall: stall}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f(ctx)
	})
	return err
}

// Mark is what a reflector reads of a call.
var Mark = mark
