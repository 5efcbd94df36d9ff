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
	// TTL is how long a lease lasts without renewal: how long others may take a
	// process that died for one that lives.
	TTL = 10 * time.Second
	// Renewal is how often it is renewed; two may fail in a row.
	Renewal = TTL * 3 / 10
)

// Leases keeps leases; the store does.
type Leases interface {
	Lister
	AcquireLease(ctx context.Context, l record.Lease, ttl time.Duration, alone bool) (record.Lease, error)
	RenewLease(ctx context.Context, l record.Lease, ttl time.Duration) error
	ReleaseLease(ctx context.Context, l record.Lease) error
}

// Lister reads leases.
type Lister interface {
	// Leases lists those of a role that are not over, the latest first.
	Leases(ctx context.Context, role record.Role) ([]record.Lease, error)
}

// Holder keeps the lease of this process.
type Holder struct {
	leases Leases
	wanted record.Lease
	alone  bool
	ttl    time.Duration
	log    *zap.Logger

	mu    sync.Mutex
	lease record.Lease // Epoch 0 while it is not held
	until time.Time    // by this process's clock, never later than by the database's
}

// Hold takes the lease: wanted.Role for wanted.Name at wanted.URL. If it is to
// be alone, whoever had the role loses it. ttl is TTL but for tests. Run keeps it.
func Hold(ctx context.Context, leases Leases, wanted record.Lease, alone bool, ttl time.Duration, log *zap.Logger) (*Holder, error) {
	h := &Holder{leases: leases, wanted: wanted, alone: alone, ttl: ttl, log: log}
	return h, h.acquire(ctx)
}

// Run renews the lease until ctx ends.
func (h *Holder) Run(ctx context.Context) {
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

// step renews, or tries to get back what is lost. A store that is away is asked
// again at the next step; meanwhile the lease runs out by our own clock.
func (h *Holder) step(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := h.renew(ctx)
	if errors.Is(err, record.ErrLeaseLost) {
		h.log.Warn("lease lost", zap.String("role", string(h.wanted.Role)))
		h.lose()
		err = nil
	}
	if err == nil && h.held().Epoch == 0 {
		err = h.regain(ctx)
	}
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		h.log.Warn("lease not renewed", zap.Error(err))
	}
}

// Holds reports whether the lease is this process's at this moment.
func (h *Holder) Holds() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease.Epoch != 0 && time.Now().Before(h.until)
}

// Release ends the lease at once. Run must have returned.
func (h *Holder) Release(ctx context.Context) error {
	l := h.held()
	h.lose()
	if l.Epoch == 0 {
		return nil
	}
	return h.leases.ReleaseLease(ctx, l)
}

// Guard lets requests pass while the lease is held, and answers others as a
// fault: whoever asks goes on to the process that holds it now.
func (h *Holder) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.Holds() {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set(protocol.FaultHeader, "standby")
		w.WriteHeader(http.StatusServiceUnavailable)
		// Who left does not need it.
		_, _ = fmt.Fprintf(w, `{"error":{"message":"this %s does not hold its lease","type":"server_error","code":"standby","param":null}}`, h.wanted.Role)
	})
}

func (h *Holder) renew(ctx context.Context) error {
	l := h.held()
	if l.Epoch == 0 {
		return nil
	}
	asked := time.Now()
	if err := h.leases.RenewLease(ctx, l, h.ttl); err != nil {
		return err
	}
	h.keep(l, asked)
	return nil
}

// regain takes the lease again, but never from a process that has it alone.
func (h *Holder) regain(ctx context.Context) error {
	if h.alone {
		others, err := h.leases.Leases(ctx, h.wanted.Role)
		if err != nil || len(others) > 0 {
			return err
		}
	}
	return h.acquire(ctx)
}

func (h *Holder) acquire(ctx context.Context) error {
	asked := time.Now()
	l, err := h.leases.AcquireLease(ctx, h.wanted, h.ttl, h.alone)
	if err != nil {
		return err
	}
	h.keep(l, asked)
	h.log.Info("lease acquired", zap.String("role", string(l.Role)), zap.String("url", l.URL), zap.Int64("epoch", l.Epoch))
	return nil
}

func (h *Holder) held() record.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease
}

func (h *Holder) keep(l record.Lease, asked time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease, h.until = l, asked.Add(h.ttl)
}

func (h *Holder) lose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease = record.Lease{}
}
