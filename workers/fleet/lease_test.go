package fleet_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// leases is a real store that a test may take away.
type leases struct {
	*store.Store
	away atomic.Bool
}

var errAway = errors.New("store is away")

func (l *leases) RenewLease(ctx context.Context, lease record.Lease, ttl time.Duration) error {
	if l.away.Load() {
		return errAway
	}
	return l.Store.RenewLease(ctx, lease, ttl)
}

func (l *leases) Leases(ctx context.Context, role record.Role) ([]record.Lease, error) {
	if l.away.Load() {
		return nil, errAway
	}
	return l.Store.Leases(ctx, role)
}

func newLeases(t *testing.T) *leases {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	return &leases{Store: s}
}

// ttl is short, so that a test sees leases end.
const ttl = 300 * time.Millisecond

func wanted(name string) record.Lease {
	return record.Lease{Role: record.Gateway, Name: name, URL: "http://" + name}
}

// hold takes the gateway's lease and keeps it until stop is called.
func hold(t *testing.T, l *leases, name string) (h *fleet.HeldLease, stop func()) {
	t.Helper()
	h, err := fleet.AcquireLease(t.Context(), l, wanted(name), true, ttl, zap.NewNop())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { h.Run(ctx) })
	stop = func() {
		cancel()
		run.Wait()
	}
	t.Cleanup(stop)
	return h, stop
}

func eventually(t *testing.T, claim func() bool, what string) {
	t.Helper()
	require.Eventually(t, claim, 10*time.Second, 5*time.Millisecond, what)
}

func status(h *fleet.HeldLease) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })).
		ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/r/x", nil))
	return w
}

func TestALeaseIsKeptAsLongAsItsHolderRuns(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	h, stop := hold(t, l, "a")
	require.Equal(t, http.StatusTeapot, status(h).Code)
	first, err := l.Leases(t.Context(), record.Gateway)
	require.NoError(t, err)
	eventually(t, func() bool {
		now, err := l.Leases(t.Context(), record.Gateway)
		return err == nil && len(now) == 1 && now[0].Epoch == first[0].Epoch && now[0].Expires.After(first[0].Expires.Add(2*ttl))
	}, "the lease is renewed")
	stop()
	require.NoError(t, h.Release(t.Context()))
	now, err := l.Leases(t.Context(), record.Gateway)
	require.NoError(t, err)
	require.Empty(t, now)
	require.False(t, h.Valid())
}

func TestOneGatewayAnswersAtATimeAndTheNextTakesOver(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	older, _ := hold(t, l, "a")
	newer, stop := hold(t, l, "b")
	eventually(t, func() bool { return !older.Valid() }, "the older one gives way")
	reply := status(older)
	require.Equal(t, http.StatusServiceUnavailable, reply.Code)
	require.NotEmpty(t, reply.Header().Get(protocol.FaultHeader))
	taken, err := l.Leases(t.Context(), record.Gateway)
	require.NoError(t, err)
	eventually(t, func() bool {
		now, err := l.Leases(t.Context(), record.Gateway)
		return err == nil && len(now) == 1 && now[0].Epoch == taken[0].Epoch && now[0].Expires.After(taken[0].Expires.Add(2*ttl))
	}, "the newer one is left alone")
	require.True(t, newer.Valid())
	require.False(t, older.Valid())

	stop() // as if killed: the lease is not released
	eventually(t, older.Valid, "the older one is a standby")
}

// A process that hung for longer than its lease wakes up and must not answer
// before it knows that the lease is still its own.
func TestALeaseThatCannotBeRenewedEndsByOurOwnClock(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	h, _ := hold(t, l, "a")
	l.away.Store(true)
	eventually(t, func() bool { return !h.Valid() }, "nobody can tell whether it is still the owner")
	require.Equal(t, http.StatusServiceUnavailable, status(h).Code)
	l.away.Store(false)
	eventually(t, h.Valid, "nobody took its place meanwhile")
}

func TestAFinderKnowsTheLatestAndKeepsItWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	f := fleet.NewFinder(l, record.Gateway, zap.NewNop())
	require.Empty(t, f.URL())
	hold(t, l, "a")
	f.Invalidate()
	require.Equal(t, "http://a", f.URL())
	hold(t, l, "b")
	require.Equal(t, "http://a", f.URL(), "what was read is good for a while")
	eventually(t, func() bool { return f.URL() == "http://b" }, "and then read again")
	l.away.Store(true)
	f.Invalidate()
	require.Equal(t, "http://b", f.URL())
	require.Equal(t, "http://c", fleet.NewFinder(fleet.Fixed("http://c"), record.Gateway, zap.NewNop()).URL())
}

// Containers that are started from one definition may give their processes one name.
func TestProcessesOfOneNameDoNotTakeTheLeaseFromEachOther(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	log, lines := observer.New(zap.WarnLevel)
	begin := func(url string) *fleet.HeldLease {
		h, err := fleet.AcquireLease(t.Context(), l, record.Lease{Role: record.Sampler, Name: "one", URL: url}, false, ttl, zap.New(log))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		var run sync.WaitGroup
		run.Go(func() { h.Run(ctx) })
		t.Cleanup(func() { cancel(); run.Wait() })
		return h
	}
	first := begin("http://first")
	second := begin("http://second")
	held, err := l.Leases(t.Context(), record.Sampler)
	require.NoError(t, err)
	eventually(t, func() bool { return lines.FilterMessage("lease not renewed").Len() >= 3 }, "the first one says what is wrong")
	require.Contains(t, lines.FilterMessage("lease not renewed").All()[0].ContextMap()["error"], "the sampler at http://second has the same name, one, and began later: give each process its own --name")
	require.False(t, first.Valid())
	require.True(t, second.Valid())
	now, err := l.Leases(t.Context(), record.Sampler)
	require.NoError(t, err)
	require.Len(t, now, 1)
	require.Equal(t, held[0].Epoch, now[0].Epoch, "nobody took it")
}
