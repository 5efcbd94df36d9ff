// Package health finds out whether a peer that does not answer requests is still alive.
//
// A process that is stopped, or a machine that is cut off, accepts requests and answers
// none. A [Prober] therefore asks such a peer's /healthz while requests to it are
// outstanding, and ends the requests if the peer has not answered for too long. A peer
// that answers its probes may take as long as it likes.
package health

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// Path is where a process answers that it lives.
	Path = "/healthz"
	// Every is how often a peer is asked while a request is outstanding there.
	Every = 2 * time.Second
	// Patience is how long the peer may leave probes unanswered.
	Patience = 10 * time.Second
)

// Config of a Prober.
type Config struct {
	URL      string        // of the peer, without Path
	Every    time.Duration // 0 is the constant Every
	Patience time.Duration // 0 is the constant Patience
	// Gone is the cause with which requests to a peer that does not answer end.
	Gone error
	// Healthy reports whether a status is a sign of life; nil takes any.
	Healthy func(status int) bool
	// TLS says which certificates of the peer are accepted; nil is what the system accepts.
	TLS *tls.Config
}

// Prober watches one peer for all requests outstanding there. It runs while there
// are any. It is safe for concurrent use.
type Prober struct {
	Config
	transport *http.Transport

	mu          sync.Mutex
	outstanding map[int]context.CancelCauseFunc
	next        int
	stop        func() // ends the probes and waits for that
}

// New returns a prober.
func New(c Config) *Prober {
	if c.Every == 0 {
		c.Every = Every
	}
	if c.Patience == 0 {
		c.Patience = Patience
	}
	if c.Healthy == nil {
		c.Healthy = func(int) bool { return true }
	}
	c.URL = strings.TrimSuffix(c.URL, "/")
	return &Prober{
		Config: c, outstanding: map[int]context.CancelCauseFunc{},
		// A connection that was kept may still work although the peer accepts no new
		// ones, or it may lead to the peer's earlier address.
		transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSClientConfig: c.TLS.Clone()},
	}
}

// Guard returns a context that ends with Gone as its cause when the peer stops
// answering. The caller calls release once its request has ended.
func (p *Prober) Guard(ctx context.Context) (guarded context.Context, release func()) {
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

func (p *Prober) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var probing sync.WaitGroup
	probing.Go(func() { p.probe(ctx) })
	return func() {
		cancel()
		probing.Wait()
	}
}

// probe measures how long the peer has not answered. It asks once more before it gives
// up, because this process itself may have been stopped meanwhile.
func (p *Prober) probe(ctx context.Context) {
	tick := time.NewTicker(p.Every)
	defer tick.Stop()
	answered := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		alive := p.answers(ctx, max(p.Every, p.Patience-time.Since(answered)))
		switch {
		case ctx.Err() != nil:
			return
		case alive:
			answered = time.Now()
		case time.Since(answered) >= p.Patience:
			p.giveUp()
		}
	}
}

// Answers reports whether the peer answers now.
func (p *Prober) Answers() bool { return p.answers(context.Background(), p.Patience) }

func (p *Prober) answers(ctx context.Context, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+Path, http.NoBody)
	if err != nil {
		return false
	}
	response, err := p.transport.RoundTrip(request)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10))
	return errors.Join(err, response.Body.Close()) == nil && p.Healthy(response.StatusCode)
}

func (p *Prober) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range p.outstanding {
		cancel(p.Gone)
	}
}

// NewTransport returns a transport that uses the proxies of the environment, does not
// change bodies, and notices within half a minute that the other machine is gone. trusted
// says which certificates are accepted; nil is what the system accepts.
func NewTransport(trusted *tls.Config) *http.Transport {
	dialer := net.Dialer{
		Timeout:         10 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 256, // one for each request in flight of a busy process
		IdleConnTimeout:     time.Minute,
		TLSHandshakeTimeout: 10 * time.Second,
		TLSClientConfig:     trusted.Clone(),
	}
}
