package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestFailuresOfAGraderAreCountedByAttempt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a, other := begin(t, s, rollout(0, 0)), begin(t, s, rollout(0, 1))
		counted := make(chan int, 8)
		var at errgroup.Group
		for range cap(counted) {
			at.Go(func() error {
				n, err := s.PutGradingFailure(t.Context(), a, "exit code 3\x00")
				counted <- n
				return err
			})
		}
		require.NoError(t, at.Wait())
		close(counted)
		seen := map[int]bool{}
		for n := range counted {
			seen[n] = true
		}
		require.Len(t, seen, 8)
		require.True(t, seen[1] && seen[8])
		n, err := s.PutGradingFailure(t.Context(), other, "exit code 3")
		require.NoError(t, err)
		require.Equal(t, 1, n)
		other.Attempt = 9
		_, err = s.PutGradingFailure(t.Context(), other, "exit code 3")
		require.ErrorIs(t, err, record.ErrNotFound)
	})
}
