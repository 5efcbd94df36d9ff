package archive

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/record"
)

const (
	// leaseTime is how long after the death of an archiver others leave its run alone.
	leaseTime = 30 * time.Second
	// releaseTime bounds the end of a lease: a store that is away ends it by itself.
	releaseTime = 5 * time.Second
)

// whileLeased calls f while this process has the lease of a run, so that no other archiver
// reads the run's histories meanwhile. If the lease is lost, the context of f ends, and the error
// is record.ErrLeaseLost unless f has returned none. If another process has the lease, the error
// is record.ErrLeaseHeld.
func (a *Archiver) whileLeased(ctx context.Context, run string, f func(context.Context) error) error {
	ttl := cmp.Or(a.Lease, leaseTime)
	began := time.Now()
	lease, err := a.Store.AcquireFreeLease(ctx, record.Lease{Role: record.Archiver, Name: run}, ttl)
	if err != nil {
		return err
	}
	leased, end := context.WithCancelCause(ctx)
	var renewal sync.WaitGroup
	renewal.Go(func() { end(a.renew(leased, lease, began, ttl)) })
	err = f(leased)
	if cause := context.Cause(leased); err != nil && errors.Is(cause, record.ErrLeaseLost) {
		err = cause
	}
	end(nil)
	renewal.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	if failure := a.Store.ReleaseLease(last, lease); failure != nil { // it ends by itself
		a.Log.Warn("lease of an archiver not ended", zap.String("run", run), zap.Error(failure))
	}
	return err
}

// renew renews a lease, which was acquired after began, until ctx ends. If it is lost, or could
// not be renewed in time, renew returns record.ErrLeaseLost.
func (a *Archiver) renew(ctx context.Context, lease record.Lease, began time.Time, ttl time.Duration) error {
	every := ttl * 3 / 10 // two renewals may fail in a row
	tick := time.NewTicker(every)
	defer tick.Stop()
	for until := began.Add(ttl); ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		asked := time.Now()
		limited, cancel := context.WithTimeout(ctx, every)
		err := a.Store.RenewLease(limited, lease, ttl)
		cancel()
		switch {
		case err == nil:
			until = asked.Add(ttl)
		case errors.Is(err, record.ErrLeaseLost):
			return err
		case time.Now().After(until):
			return errors.Join(record.ErrLeaseLost, err)
		}
	}
}
