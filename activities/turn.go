package activities

import (
	"context"
	"sync"
	"sync/atomic"
)

// turn is a lock that whoever waits for it may give up. The zero value is free.
type turn struct {
	once  sync.Once
	taken chan struct{}
}

func (t *turn) take(ctx context.Context) error {
	t.once.Do(func() { t.taken = make(chan struct{}, 1) })
	select {
	case t.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *turn) give() { <-t.taken }

// counted are blobs whose reads and writes are pieces of work.
type counted struct {
	Blobs
	work *atomic.Uint64
}

func (t *Trainer) blobs() Blobs { return counted{t.Blobs, &t.work} }

func (c counted) Put(ctx context.Context, data []byte) (string, error) {
	defer c.work.Add(1)
	return c.Blobs.Put(ctx, data)
}

func (c counted) Get(ctx context.Context, digest string) ([]byte, error) {
	defer c.work.Add(1)
	return c.Blobs.Get(ctx, digest)
}
