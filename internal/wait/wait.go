// Package wait waits until a time has passed or a context ends.
package wait

import (
	"context"
	"time"
)

// For waits for d. It returns false if ctx ended before that.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
