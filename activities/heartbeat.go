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

// heartbeatEvery is how often a long activity says that it lives; the SDK drops
// what is more frequent than its timeout needs.
const heartbeatEvery = time.Second

// errStalled ends the context of an activity that makes no progress.
var errStalled = errors.New("activity makes no progress")

// beat is what an activity tells Temporal while it works.
type beat struct {
	// progress is what a heartbeat carries. It has to be another value after each
	// piece of the work, and must be quick and safe for concurrent use.
	progress func() any
	// stall is how long progress may stand still. After that nothing is sent, so
	// that Temporal times the activity out and has it tried elsewhere: a goroutine
	// that lives is no progress. 0 is no limit.
	stall time.Duration
}

// beating runs f and sends Temporal its progress until f ends. The context that f
// gets ends with errStalled when progress has stood still for too long. Should f
// move on all the same, so do the heartbeats, and Temporal's answer tells whether
// another attempt has taken its place.
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

// pulseKey is where the context of an activity has its Pulse.
type pulseKey struct{}

// Pulse is what a worker reports of an activity that reports nothing itself. While the
// activity does, the pulse is silent: it would say that one lives which stands still,
// and its heartbeats carry no details and would replace those that do.
type Pulse struct {
	mu      sync.Mutex
	silent  int // reports of the activity itself under way
	details []any
}

// WithPulse returns a context in which activities silence p while they beat.
func WithPulse(ctx context.Context, p *Pulse) context.Context {
	return context.WithValue(ctx, pulseKey{}, p)
}

// Beat reports that the activity of ctx lives, unless it reports itself. What it said
// last stays what its heartbeats say.
func (p *Pulse) Beat(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent == 0 {
		activity.RecordHeartbeat(ctx, p.details...)
	}
}

// silence stops the pulse in ctx, if there is one, until the function that it returns
// is called with what the activity said last.
func silence(ctx context.Context) (resume func(details any)) {
	p, ok := ctx.Value(pulseKey{}).(*Pulse)
	if !ok {
		return func(any) {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent++
	return func(details any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.silent--
		p.details = []any{details}
	}
}
