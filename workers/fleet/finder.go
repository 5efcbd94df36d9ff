package fleet

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/record"
)

// refreshEvery is the greatest age of the leases that were read.
const refreshEvery = time.Second

// Fixed is a list of one lease that never ends: a process at a known URL.
type Fixed string

// Leases implements Lister.
func (f Fixed) Leases(_ context.Context, role record.Role) ([]record.Lease, error) {
	return []record.Lease{{Role: role, Name: string(f), URL: string(f), Epoch: 1}}, nil
}

// Finder reads the leases of a role, at most every second. While the store does not
// answer, it returns those it read last.
type Finder struct {
	leases Lister
	role   record.Role
	log    *zap.Logger

	mu   sync.Mutex
	live []record.Lease
	read time.Time
}

// NewFinder returns a finder that reads nothing before it is asked.
func NewFinder(leases Lister, role record.Role, log *zap.Logger) *Finder {
	return &Finder{leases: leases, role: role, log: log}
}

// URL returns the URL of the latest lease, or "" if there is none.
func (f *Finder) URL() string {
	live := f.Live(context.Background())
	if len(live) == 0 {
		return ""
	}
	return live[0].URL
}

// Live returns the leases that are not over, the latest first.
func (f *Finder) Live(ctx context.Context) []record.Lease {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.read) < refreshEvery {
		return f.live
	}
	ctx, cancel := context.WithTimeout(ctx, refreshEvery)
	defer cancel()
	live, err := f.leases.Leases(ctx, f.role)
	if err != nil {
		f.log.Warn("leases not read", zap.String("role", string(f.role)), zap.Error(err))
	} else {
		f.live = live
	}
	f.read = time.Now() // also after an error, so that not every request waits for a store that is away
	return f.live
}

// Invalidate makes the next call read the leases, whatever their age.
func (f *Finder) Invalidate() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read = time.Time{}
}
