package store_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func gatewayAt(name, url string) record.Lease {
	return record.Lease{Role: record.Gateway, Name: name, URL: url}
}

func acquire(t *testing.T, s *store.Store, l record.Lease, ttl time.Duration, alone bool) record.Lease {
	t.Helper()
	taken, err := s.AcquireLease(t.Context(), l, ttl, alone)
	require.NoError(t, err)
	return taken
}

func live(t *testing.T, s *store.Store, role record.Role) []record.Lease {
	t.Helper()
	list, err := s.Leases(t.Context(), role)
	require.NoError(t, err)
	return list
}

func TestTheLatestLeaseOfARoleComesFirst(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		require.Empty(t, live(t, s, record.Sampler))
		before := time.Now()
		a := acquire(t, s, record.Lease{Role: record.Sampler, Name: "a", URL: "http://a"}, time.Hour, false)
		b := acquire(t, s, record.Lease{Role: record.Sampler, Name: "b", URL: "http://b"}, time.Hour, false)
		requireEqual(t, []record.Lease{b, a}, live(t, s, record.Sampler))
		require.Greater(t, b.Epoch, a.Epoch)
		require.WithinRange(t, a.Expires, before.Add(time.Hour-time.Minute), time.Now().Add(time.Hour+time.Minute))
		require.Empty(t, live(t, s, record.Gateway), "roles are apart")

		again := acquire(t, s, record.Lease{Role: record.Sampler, Name: "a", URL: "http://elsewhere"}, time.Hour, false)
		requireEqual(t, []record.Lease{again, b}, live(t, s, record.Sampler))
		require.ErrorIs(t, s.RenewLease(t.Context(), a, time.Hour), record.ErrLeaseLost, "an older process of the name")
		require.NoError(t, s.RenewLease(t.Context(), b, time.Hour))
	})
}

func TestALeaseThatIsToBeAloneEndsAllOthers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		older := acquire(t, s, gatewayAt("a", "http://a"), time.Hour, true)
		newer := acquire(t, s, gatewayAt("b", "http://b"), time.Hour, true)
		requireEqual(t, []record.Lease{newer}, live(t, s, record.Gateway))
		require.ErrorIs(t, s.RenewLease(t.Context(), older, time.Hour), record.ErrLeaseLost)
		require.NoError(t, s.ReleaseLease(t.Context(), older), "what is lost is let go already")
		requireEqual(t, []record.Lease{newer}, live(t, s, record.Gateway))
	})
}

func TestLeasesEndUnlessTheyAreRenewed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		l := acquire(t, s, gatewayAt("a", "http://a"), time.Hour, true)
		require.NotEmpty(t, live(t, s, record.Gateway))
		require.NoError(t, s.RenewLease(t.Context(), l, time.Millisecond))
		require.Eventually(t, func() bool {
			list, err := s.Leases(t.Context(), record.Gateway)
			return assert.NoError(t, err) && len(list) == 0
		}, 10*time.Second, 10*time.Millisecond)
		require.NoError(t, s.RenewLease(t.Context(), l, time.Hour), "nobody took its place")
		require.Len(t, live(t, s, record.Gateway), 1)

		require.NoError(t, s.ReleaseLease(t.Context(), l))
		require.Empty(t, live(t, s, record.Gateway))
		require.ErrorIs(t, s.RenewLease(t.Context(), l, time.Hour), record.ErrLeaseLost)
		require.Greater(t, acquire(t, s, gatewayAt("b", "http://b"), time.Hour, true).Epoch, l.Epoch, "no epoch is used twice")
	})
}

func TestLeasesTakenAtOnceHaveDifferentEpochs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				_, err := s.AcquireLease(t.Context(), gatewayAt(strconv.Itoa(i), "http://x"), time.Hour, true)
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		list := live(t, s, record.Gateway)
		require.Len(t, list, 1)
		require.Equal(t, int64(16), list[0].Epoch)
	})
}

func TestAFreeLeaseIsGivenToOneProcessUntilItEnds(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		free := func(run string, ttl time.Duration) (record.Lease, error) {
			return s.AcquireFreeLease(ctx, record.Lease{Role: record.Archiver, Name: run}, ttl)
		}
		held, err := free("one", time.Hour)
		require.NoError(t, err)
		_, err = free("one", time.Hour)
		require.ErrorIs(t, err, record.ErrLeaseHeld)
		_, err = free("two", time.Hour)
		require.NoError(t, err, "another run")
		require.NoError(t, s.RenewLease(ctx, held, time.Hour), "the refusal has changed nothing")

		require.NoError(t, s.ReleaseLease(ctx, held))
		next, err := free("one", time.Millisecond) // its holder is killed
		require.NoError(t, err)
		require.Greater(t, next.Epoch, held.Epoch)
		var last record.Lease
		require.Eventually(t, func() bool {
			last, err = free("one", time.Hour)
			return err == nil
		}, 10*time.Second, 10*time.Millisecond)
		require.ErrorIs(t, s.RenewLease(ctx, next, time.Hour), record.ErrLeaseLost)
		require.NoError(t, s.RenewLease(ctx, last, time.Hour))
	})
}

func TestOfProcessesThatWantAFreeLeaseAtOnceOneGetsIt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		var given, refused atomic.Int64
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				_, err := s.AcquireFreeLease(t.Context(), record.Lease{Role: record.Archiver, Name: "one"}, time.Hour)
				if err == nil {
					given.Add(1)
				} else if assert.ErrorIs(t, err, record.ErrLeaseHeld) {
					refused.Add(1)
				}
			})
		}
		wg.Wait()
		require.Equal(t, int64(1), given.Load())
		require.Equal(t, int64(15), refused.Load())
	})
}
