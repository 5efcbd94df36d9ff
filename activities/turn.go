package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// inTurn makes a subject by f, one at a time. Whoever waits for its turn beats with
// the work of the one who has it.
func inTurn[Result any](ctx context.Context, t *Trainer, subject string, f func(context.Context) (Result, error)) (Result, error) {
	b := beat{progress: func() any { return t.work.Load() }, stall: cmp.Or(t.Stall, stall)}
	return beating(ctx, b, func(ctx context.Context) (Result, error) {
		made, err := alone(ctx, t, subject, f)
		if cause := context.Cause(ctx); err != nil && errors.Is(cause, errStalled) {
			err = fmt.Errorf("%s: %w: %w", subject, cause, err)
		}
		return made, err
	})
}

func alone[Result any](ctx context.Context, t *Trainer, subject string, f func(context.Context) (Result, error)) (made Result, err error) {
	if err := t.turn.take(ctx); err != nil {
		return made, fmt.Errorf("wait to make %s: %w", subject, err)
	}
	defer t.turn.give()
	return f(ctx)
}

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
