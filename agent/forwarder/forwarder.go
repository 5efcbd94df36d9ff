// Package forwarder runs in each worker, between its agents and the gateway.
//
// # Sessions
//
// Each attempt has a [Session] with its own address ([Session.BaseURL]) and the attempt's
// key. A request without that key has no effect on the session. A session also ends its
// agent: when the gateway says that a later attempt has begun, and when the agent goes on
// asking beyond its limits. No client delays the end of a session: a request has a minute
// to arrive completely, and is interrupted when the session ends.
//
// An external agent, which another program starts, sends its requests to a session that
// stays open until it is closed over HTTP ([Forwarder.OpenExternal], [CloseExternal]). A
// worker that is gone can't say whether there was a fault, so its sessions count as
// faulty.
//
// # Faults
//
// When the gateway is away the forwarder keeps the agent's connection and asks again, so
// that an unmodified agent notices only a wait. If a gateway takes a request and says
// nothing, the forwarder probes it every two seconds, and gives it up after ten seconds
// without an answer; it waits without limit for a gateway that answers the probes. It
// continues an interrupted stream where the agent's copy ends: any gateway writes the
// same reply, to the byte except for keepalives.
//
// If a fault can't be hidden, the session is tainted and the attempt has to be made
// again: a fault of the machinery must never teach a policy anything.
package forwarder

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/internal/health"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/internal/trust"
	"github.com/fulgurite/fulgurite/record"
)

const (
	// requestBytes is the largest request that is forwarded, the same that gateways
	// accept by default. The request is held in memory for as long as it may have to be
	// sent again.
	requestBytes = 32 << 20
	// replyBytes is the largest reply that is held back until it is complete.
	replyBytes = 64 << 20
)

var (
	errForwarderClosed = errors.New("forwarder closed")
	errSessionClosed   = errors.New("session closed")
	// errSilent says that a gateway accepts requests and answers none, not even a probe.
	errSilent = errors.New("the gateway does not answer")
	errHeldUp = errors.New("the gateway does not answer, and a request waits")
)

// Forwarder is the HTTP server through which all agents of a worker reach the gateway.
// It listens on a port of the loopback interface, unless it has external agents too
// (At). It passes on what belongs to an open Session and refuses everything else.
type Forwarder struct {
	target    func() string
	log       *zap.Logger
	at        string // host and port for agents
	secure    bool   // agents on other machines reach it over TLS
	local     string // host and port without TLS, for agents on this machine
	server    *http.Server
	transport *http.Transport
	served    sync.WaitGroup // one for each listener

	closing  context.Context // ends when Close begins
	close    context.CancelFunc
	broken   context.Context // ends when Close waits no longer
	breakOff context.CancelFunc

	mu       sync.Mutex
	closed   bool
	sessions map[record.Address]*Session
	prober   *health.Prober // of the gateway that was asked last
	probing  health.Config
}

// Option changes a forwarder.
type Option func(*config)

// At makes a forwarder listen on every interface, and agents reach it at address. The
// address is a host or host:port; without a port, the forwarder listens on any free one.
// Agents on other machines need this. An empty address changes nothing.
func At(address string) Option { return func(c *config) { c.address = address } }

// Trust says which certificates the gateway may have; nil is what the system accepts.
func Trust(trusted *tls.Config) Option { return func(c *config) { c.trusted = trusted } }

// Over makes a forwarder with external agents serve them over TLS. Agents on this machine then
// have a port of the loopback interface without TLS, because they need not accept the
// authority of the certificate. A nil certificate changes nothing. Without At it changes
// nothing either, because all agents are on this machine.
func Over(certificate *trust.Certificate) Option {
	return func(c *config) { c.certificate = certificate }
}

type config struct {
	address     string
	trusted     *tls.Config
	certificate *trust.Certificate
}

// New starts a forwarder to the gateway at target, a URL without the "/r/…" part. It
// calls target before every try, so that a gateway may move; an empty string means that
// there is no gateway at the moment. The forwarder serves until Close, even if ctx ends.
func New(ctx context.Context, target func() string, log *zap.Logger, options ...Option) (*Forwarder, error) {
	var c config
	for _, o := range options {
		o(&c)
	}
	listener, at, err := c.listen(ctx)
	if err != nil {
		return nil, fmt.Errorf("listen for agents: %w", err)
	}
	f := &Forwarder{
		target:    target,
		log:       log,
		at:        at,
		local:     at,
		transport: health.NewTransport(c.trusted),
		sessions:  map[record.Address]*Session{},
		// An error of the server is no sign of life: the gateway is at fault, or a proxy
		// has lost it.
		probing: health.Config{Gone: errSilent, TLS: c.trusted, Healthy: func(status int) bool { return status < http.StatusInternalServerError }},
	}
	f.closing, f.close = context.WithCancel(context.WithoutCancel(ctx))
	f.broken, f.breakOff = context.WithCancel(context.WithoutCancel(ctx))
	f.server = &http.Server{
		Handler:           http.HandlerFunc(f.serve),
		ReadHeaderTimeout: time.Minute, // agents are local; only a broken one is slower
		ErrorLog:          zap.NewStdLog(log),
		Protocols:         protocol.Versions(),
	}
	if f.secure = c.address != "" && c.certificate != nil; !f.secure {
		f.start(listener, f.server.Serve)
		return f, nil
	}
	local, at, err := listenLocally(ctx)
	if err != nil {
		return nil, fmt.Errorf("listen for agents of this machine: %w", errors.Join(err, listener.Close()))
	}
	f.local, f.server.TLSConfig = at, c.certificate.Config()
	f.start(listener, func(l net.Listener) error { return f.server.ServeTLS(l, "", "") })
	f.start(local, f.server.Serve)
	return f, nil
}

// start serves a listener until the server ends.
func (f *Forwarder) start(l net.Listener, serve func(net.Listener) error) {
	f.served.Go(func() {
		if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
			f.log.Error("forwarder ended", zap.Error(err))
		}
	})
}

// listenLocally returns a listener on a port of the loopback interface, and its host and port.
func listenLocally(ctx context.Context) (net.Listener, string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	return l, l.Addr().String(), nil
}

// listen returns a listener, and the host and port at which agents reach it.
func (c config) listen(ctx context.Context) (net.Listener, string, error) {
	if c.address == "" {
		return listenLocally(ctx)
	}
	var lc net.ListenConfig
	host, port := strings.Trim(c.address, "[]"), "0"
	if h, n, err := net.SplitHostPort(c.address); err == nil {
		host, port = h, n
	}
	if host == "" {
		return nil, "", fmt.Errorf("%q names no host: give the one by which agents reach this machine", c.address)
	}
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("", port))
	if err != nil {
		return nil, "", err
	}
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, "", err
	}
	return l, net.JoinHostPort(host, port), nil
}

// URL returns where agents on other machines reach the forwarder, without a path. Without At
// only those on this machine do.
func (f *Forwarder) URL() string {
	if f.secure {
		return "https://" + f.at
	}
	return "http://" + f.at
}

// Open opens a session: requests to the attempt that have its key are passed on until the
// session is closed or ctx ends. An attempt has at most one open session. Its agent is on this
// machine, or is a service (Session.ServiceURL).
func (f *Forwarder) Open(ctx context.Context, address record.Address, key string) (*Session, error) {
	return f.open(newSession(ctx, f, address, key))
}

func (f *Forwarder) open(s *Session) (*Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, fmt.Errorf("open session %s: %w", s.address, errForwarderClosed)
	}
	if f.sessions[s.address] != nil {
		return nil, fmt.Errorf("open session %s: it is open already", s.address)
	}
	f.sessions[s.address] = s
	return s, nil
}

// Close stops listening and lets replies in flight finish until ctx ends, then breaks
// them off. Requests that have not arrived completely are broken off at once. Sessions
// that are still open are tainted, because their agents can no longer ask. So close the
// sessions first.
func (f *Forwarder) Close(ctx context.Context) error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.close()
	err := f.server.Shutdown(ctx)
	f.breakOff()

	f.mu.Lock()
	open := make([]*Session, 0, len(f.sessions))
	for _, s := range f.sessions {
		open = append(open, s)
	}
	f.mu.Unlock()
	for _, s := range open {
		s.taintBy(errForwarderClosed)
		s.end(errForwarderClosed)
	}
	if err != nil {
		err = fmt.Errorf("drain forwarder: %w", errors.Join(err, f.server.Close()))
	}
	for _, s := range open {
		s.requests.Wait()
	}
	f.served.Wait()
	f.transport.CloseIdleConnections()
	return err
}

func (f *Forwarder) remove(s *Session) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sessions[s.address] == s {
		delete(f.sessions, s.address)
	}
}

// proberOf returns the prober of the gateway at target.
func (f *Forwarder) proberOf(target string) *health.Prober {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.prober == nil || f.prober.URL != strings.TrimSuffix(target, "/") {
		f.probing.URL = target
		f.prober = health.New(f.probing)
	}
	return f.prober
}

// answers reports whether the gateway at target answers at this moment.
func (f *Forwarder) answers(target string) bool {
	return target != "" && f.proberOf(target).Answers()
}

func (f *Forwarder) session(address record.Address) *Session {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sessions[address]
}

// serve answers one request of an agent. A request without the key of an attempt has no
// effect on the attempt.
func (f *Forwarder) serve(w http.ResponseWriter, r *http.Request) {
	r.URL = protocol.WithoutEmptySegments(r.URL)
	address, ok := pathAddress(r.URL)
	if !ok {
		refuseUnread(w, r, http.StatusNotFound, protocol.CodeNotFound, "no attempt has this URL: use the base URL that the agent is given (OPENAI_BASE_URL)")
		return
	}
	s := f.session(address)
	if r.Method == http.MethodDelete && r.URL.Path == "/r/"+address.String() {
		closeExternal(w, r, s)
		return
	}
	if s != nil && !s.authorizes(r) {
		refuseUnread(w, r, http.StatusUnauthorized, protocol.CodeInvalidKey, "this is not the key of the attempt: send the one that the agent is given, as Authorization: Bearer KEY, or as X-Api-Key")
		return
	}
	if s == nil || !s.startRequest() {
		refuseUnread(w, r, http.StatusGone, "attempt_closed", "this attempt no longer runs here")
		return
	}
	defer s.endRequest()
	s.forward(w, r)
}

// pathAddress reads the address from "/r/run/kind-step/task/sample/attempt/…". It refuses
// a path with "..", which the gateway could take for another attempt's.
func pathAddress(u *url.URL) (record.Address, bool) {
	rest, ok := strings.CutPrefix(u.Path, "/r/")
	if !ok {
		return record.Address{}, false
	}
	parts := strings.SplitN(rest, "/", 6)
	if len(parts) < 5 || path.Clean(u.Path) != strings.TrimSuffix(u.Path, "/") {
		return record.Address{}, false
	}
	address, err := record.ParseAddress(strings.Join(parts[:5], "/"))
	return address, err == nil
}
