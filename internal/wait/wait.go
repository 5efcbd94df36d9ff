// Package wait waits for a time or for the end of a context.
package wait

import (
	"context"
	"time"
)

// For waits that long. It is false if ctx ended meanwhile.
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
