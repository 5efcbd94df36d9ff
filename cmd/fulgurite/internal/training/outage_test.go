package training

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
)

// A stack that is stopped while a run is followed says nothing about the run, however the
// connection notices it.
func TestACallIsRepeatedWhileTemporalIsAway(t *testing.T) {
	t.Parallel()
	for _, gone := range []error{
		serviceerror.NewUnavailable("connection refused"),
		serviceerror.NewDeadlineExceeded("context deadline exceeded"),
		fmt.Errorf("await the run: %w", context.DeadlineExceeded),
	} {
		calls := 0
		require.NoError(t, retryUnavailable(t.Context(), func() error {
			if calls++; calls < 3 {
				return gone
			}
			return nil
		}))
		require.Equal(t, 3, calls)
	}

	failed := errors.New("step 3 failed")
	require.Equal(t, failed, retryUnavailable(t.Context(), func() error { return failed }))

	over, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	require.ErrorIs(t, retryUnavailable(over, func() error { return context.DeadlineExceeded }), context.DeadlineExceeded, "the caller's own time is over")
}
