package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/record"
)

const (
	// TTL is how long a lease lasts without renewal, and so how long a dead process may
	// be taken for a live one.
	TTL = 10 * time.Second
	// Renewal is how often it is renewed; two may fail in a row.
	Renewal = TTL * 3 / 10
)

// Leases keeps leases; the store implements it.
type Leases interface {
	Lister
	AcquireLease(ctx context.Context, l record.Lease, ttl time.Duration, alone bool) (record.Lease, error)
	RenewLease(ctx context.Context, l record.Lease, ttl time.Duration) error
	ReleaseLease(ctx context.Context, l record.Lease) error
}

// Lister reads leases.
type Lister interface {
	// Leases lists the leases of a role that are not over, the latest first.
	Leases(ctx context.Context, role record.Role) ([]record.Lease, error)
}

// HeldLease is the lease of this process.
type HeldLease struct {
	leases Leases
	wanted record.Lease
	alone  bool
	ttl    time.Duration
	log    *zap.Logger

	mu    sync.Mutex
	lease record.Lease // Epoch 0 while it is not held
	until time.Time    // by this process's clock, never later than by the database's
}

// AcquireLease takes the lease: wanted.Role for wanted.Name at wanted.URL. With alone,
// the other holders of the role lose their leases. ttl is TTL except in tests. Run renews
// the lease.
func AcquireLease(ctx context.Context, leases Leases, wanted record.Lease, alone bool, ttl time.Duration, log *zap.Logger) (*HeldLease, error) {
	h := &HeldLease{leases: leases, wanted: wanted, alone: alone, ttl: ttl, log: log}
	return h, h.acquire(ctx)
}

// Run renews the lease until ctx ends.
func (h *HeldLease) Run(ctx context.Context) {
	every := h.ttl * 3 / 10
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		h.step(ctx, every)
	}
}

// step renews the lease, or tries to regain a lost one. A store that is away is asked
// again at the next step; meanwhile the lease ends by our own clock.
func (h *HeldLease) step(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := h.renew(ctx)
	if errors.Is(err, record.ErrLeaseLost) {
		h.log.Warn("lease lost", zap.String("role", string(h.wanted.Role)))
		h.clear()
		err = nil
	}
	if err == nil && h.current().Epoch == 0 {
		err = h.regain(ctx)
	}
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		h.log.Warn("lease not renewed", zap.Error(err))
	}
}

// Valid reports whether this process has the lease at this moment.
func (h *HeldLease) Valid() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease.Epoch != 0 && time.Now().Before(h.until)
}

// Release ends the lease at once. Run must have returned.
func (h *HeldLease) Release(ctx context.Context) error {
	l := h.current()
	h.clear()
	if l.Epoch == 0 {
		return nil
	}
	return h.leases.ReleaseLease(ctx, l)
}

// Guard lets requests pass while the lease is valid, and answers others as a fault, so
// that clients go on to the process that has the lease now.
func (h *HeldLease) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.Valid() {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set(protocol.FaultHeader, "standby")
		w.WriteHeader(http.StatusServiceUnavailable)
		// A client that has left does not need it.
		_, _ = fmt.Fprintf(w, `{"error":{"message":"this %s does not hold its lease","type":"server_error","code":"standby","param":null}}`, h.wanted.Role)
	})
}

func (h *HeldLease) renew(ctx context.Context) error {
	l := h.current()
	if l.Epoch == 0 {
		return nil
	}
	requested := time.Now()
	if err := h.leases.RenewLease(ctx, l, h.ttl); err != nil {
		return err
	}
	h.set(l, requested)
	return nil
}

// regain takes the lease again. A lease for one process alone is never taken from another,
// and neither is that of a process with the same name, which would take it back.
func (h *HeldLease) regain(ctx context.Context) error {
	others, err := h.leases.Leases(ctx, h.wanted.Role)
	if err != nil || h.alone && len(others) > 0 {
		return err
	}
	for _, other := range others {
		if other.Name == h.wanted.Name {
			return fmt.Errorf("the %s at %s has the same name, %s, and began later: give each process its own --name (FULGURITE_NAME)", other.Role, other.URL, other.Name)
		}
	}
	return h.acquire(ctx)
}

func (h *HeldLease) acquire(ctx context.Context) error {
	requested := time.Now()
	l, err := h.leases.AcquireLease(ctx, h.wanted, h.ttl, h.alone)
	if err != nil {
		return err
	}
	h.set(l, requested)
	h.log.Info("lease acquired", zap.String("role", string(l.Role)), zap.String("url", l.URL), zap.Int64("epoch", l.Epoch))
	return nil
}

func (h *HeldLease) current() record.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease
}

func (h *HeldLease) set(l record.Lease, requested time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease, h.until = l, requested.Add(h.ttl)
}

func (h *HeldLease) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease = record.Lease{}
}
