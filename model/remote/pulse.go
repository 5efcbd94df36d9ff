package remote

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

const (
	// Probe is how often a peer is asked whether it lives, while a request is
	// outstanding there.
	Probe = 2 * time.Second
	// Patience is how long it may leave that unanswered.
	Patience = 10 * time.Second
)

// ErrUnresponsive ends the requests at a peer that hangs.
var ErrUnresponsive = errors.New("sampler does not respond")

// pulse watches one peer for all requests outstanding there. It runs while there
// are any.
type pulse struct {
	url             string
	transport       *http.Transport
	every, patience time.Duration

	mu          sync.Mutex
	outstanding map[int]context.CancelCauseFunc
	next        int
	stop        func() // ends the watch and waits for it
}

func newPulse(url string, every, patience time.Duration) *pulse {
	return &pulse{
		url: url, every: every, patience: patience, outstanding: map[int]context.CancelCauseFunc{},
		// A connection that is kept could be one that still works while the peer
		// accepts no other.
		transport: &http.Transport{DisableKeepAlives: true},
	}
}

// guard returns a context that ends with ErrUnresponsive when the peer hangs.
// The caller calls release once its request has ended.
func (p *pulse) guard(ctx context.Context) (guarded context.Context, release func()) {
	guarded, cancel := context.WithCancelCause(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.next
	p.next++
	p.outstanding[id] = cancel
	if p.stop == nil {
		p.stop = p.start()
	}
	return guarded, func() {
		cancel(nil)
		p.mu.Lock()
		delete(p.outstanding, id)
		var stop func()
		if len(p.outstanding) == 0 {
			stop, p.stop = p.stop, nil
		}
		p.mu.Unlock()
		if stop != nil {
			stop()
		}
	}
}

func (p *pulse) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.watch(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// watch measures the peer's silence from answer to answer. That this process
// itself stood still is no silence of the peer: it is asked before it is judged.
func (p *pulse) watch(ctx context.Context) {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	heard := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		silent := p.ask(ctx) != nil
		if ctx.Err() != nil {
			return
		}
		if !silent {
			heard = time.Now()
		} else if time.Since(heard) >= p.patience {
			p.giveUp()
		}
	}
}

// ask is nil when the peer answers, whatever it says.
func (p *pulse) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.every)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return err
	}
	response, err := p.transport.RoundTrip(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func (p *pulse) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range p.outstanding {
		cancel(ErrUnresponsive)
	}
}
