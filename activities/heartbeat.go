package activities

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
)

// heartbeatEvery is the time between two heartbeats; the SDK drops the ones that the
// timeout does not need.
const heartbeatEvery = time.Second

// errStalled is the cause with which the context of an activity ends that makes no
// progress.
var errStalled = errors.New("activity makes no progress")

// beat describes how an activity sends heartbeats while it works.
type beat struct {
	// progress returns the details of a heartbeat. The value has to change with each
	// piece of the work. It must be quick and safe for concurrent use.
	progress func() any
	// stall is how long progress may stay the same. After that no heartbeat is sent, so
	// Temporal times the activity out and tries it on another worker, although its
	// goroutine still exists. 0 means no limit.
	stall time.Duration
}

// beating runs f and sends heartbeats with its progress until f ends. If progress stays
// the same for too long, the context of f ends with errStalled. If f makes progress again
// nevertheless, the heartbeats continue, and Temporal's answer tells whether another
// attempt has replaced it.
func beating[T any](ctx context.Context, b beat, f func(context.Context) (T, error)) (T, error) {
	resume := silence(ctx)
	defer func() { resume(b.progress()) }()
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(heartbeatEvery)
		defer tick.Stop()
		last, moved := b.progress(), time.Now()
		for {
			select {
			case <-stop:
				return
			case <-ctx.Done():
				return
			case now := <-tick.C:
				if p := b.progress(); !reflect.DeepEqual(p, last) {
					last, moved = p, now
				}
				if b.stall > 0 && now.Sub(moved) > b.stall {
					cancel(fmt.Errorf("%w for %s", errStalled, b.stall))
					continue
				}
				activity.RecordHeartbeat(ctx, last)
			}
		}
	})
	defer wg.Wait()
	defer close(stop)
	return f(working)
}

// keepAliveKey is the key of the KeepAlive in an activity's context.
type keepAliveKey struct{}

// KeepAlive sends heartbeats for an activity that sends none itself. It is silent while
// the activity sends its own: otherwise it would hide that the activity hangs, and
// replace the details of its heartbeats by none.
type KeepAlive struct {
	mu      sync.Mutex
	silent  int // number of calls of beating that are running
	details []any
}

// WithKeepAlive returns a context in which activities silence k while they beat.
func WithKeepAlive(ctx context.Context, k *KeepAlive) context.Context {
	return context.WithValue(ctx, keepAliveKey{}, k)
}

// Beat sends a heartbeat for the activity of ctx, unless it sends its own. The details
// are the last ones that the activity sent.
func (k *KeepAlive) Beat(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.silent == 0 {
		activity.RecordHeartbeat(ctx, k.details...)
	}
}

// silence silences the KeepAlive in ctx, if there is one. resume ends that, and takes the
// last details of the activity.
func silence(ctx context.Context) (resume func(details any)) {
	k, ok := ctx.Value(keepAliveKey{}).(*KeepAlive)
	if !ok {
		return func(any) {}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.silent++
	return func(details any) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.silent--
		k.details = []any{details}
	}
}

// lock is a mutex. Waiting for it ends when the context ends. The zero value is unlocked.
type lock struct {
	once sync.Once
	held chan struct{}
}

func (l *lock) acquire(ctx context.Context) error {
	l.once.Do(func() { l.held = make(chan struct{}, 1) })
	select {
	case l.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *lock) release() { <-l.held }
