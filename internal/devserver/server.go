package devserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
)

const (
	// StopTimeout bounds Stop.
	StopTimeout = 30 * time.Second
	// startTimeout bounds Start. A laptop takes a second; a machine that builds at the
	// same time takes several.
	startTimeout = time.Minute
)

// Server is a running Temporal server. Its methods may be called from any
// goroutine.
type Server struct {
	options Options
	ports   ports
	lock    *os.File // nil in memory
	inner   inner
	stopped chan struct{}
	claimed atomic.Bool
	err     error // of stopping; read after stopped
}

// Start starts a server and returns when it answers. The context bounds only the start;
// Stop ends the server.
func Start(ctx context.Context, options Options) (*Server, error) {
	s := &Server{options: options.withDefaults(), stopped: make(chan struct{})}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.start(ctx); err != nil {
		return nil, fmt.Errorf("start temporal server: %w", errors.Join(err, s.Stop()))
	}
	return s, nil
}

// Address returns where clients connect, host:port.
func (s *Server) Address() string { return hostPort(s.ports.frontend) }

// ListensAt reports whether the frontend listens at port.
func (s *Server) ListensAt(port int) bool { return s.ports.frontend == port }

// Namespace returns the name of the registered namespace.
func (s *Server) Namespace() string { return s.options.Namespace }

// UIURL returns the URL of the Web UI, or "" if there is none.
func (s *Server) UIURL() string {
	if !s.options.UI {
		return ""
	}
	return "http://" + hostPort(s.ports.ui)
}

// Client connects a client. The caller has to close it before Stop.
func (s *Server) Client(ctx context.Context) (client.Client, error) {
	c, err := client.DialContext(ctx, client.Options{
		HostPort:  s.Address(),
		Namespace: s.options.Namespace,
		Logger:    sdklog.NewStructuredLogger(slog.New(zapslog.NewHandler(s.options.Log.Core()))),
	})
	if err != nil {
		return nil, fmt.Errorf("connect to temporal server %s: %w", s.Address(), err)
	}
	return c, nil
}

// Stop ends the server within StopTimeout and releases its directory. A second call waits
// for the first and returns the same. An error means that the server did not end in time;
// its data are safe, as they are against a crash.
func (s *Server) Stop() error {
	if s.claimed.CompareAndSwap(false, true) {
		s.err = s.stop()
		close(s.stopped)
	}
	<-s.stopped
	return s.err
}

func (s *Server) stop() error {
	s.inner.silent.Store(true)
	ended := make(chan error, 1)
	go func() { ended <- s.end() }()
	deadline := time.NewTimer(StopTimeout)
	defer deadline.Stop()
	select {
	case err := <-ended:
		return err
	case <-deadline.C:
		// The lock stays: the server may still write.
		return fmt.Errorf("stop temporal server: not ended after %s", StopTimeout)
	}
}

// Ports are the ports of a server in another process.
type Ports struct{ Frontend, UI int }

// Serve runs the server for another process, which has locked the directory. It writes
// its Ports to out and stops when control has a line. If control ends without one, the
// other process is dead, and this one exits.
func Serve(ctx context.Context, options []byte, control io.Reader, out io.Writer) error {
	var o Options
	if err := json.Unmarshal(options, &o); err != nil {
		return err
	}
	o.locked = true
	stop := make(chan struct{})
	go func() {
		if _, err := bufio.NewReader(control).ReadString('\n'); err != nil {
			os.Exit(1)
		}
		close(stop)
	}()
	s, err := Start(ctx, o)
	if err != nil {
		return err
	}
	err = json.NewEncoder(out).Encode(Ports{s.ports.frontend, s.ports.ui})
	if err == nil {
		<-stop
	}
	return errors.Join(err, s.Stop())
}

// Defaults of Options, and the ports that the `temporal` CLI and its users expect.
const (
	DefaultNamespace    = "default"
	DefaultRetention    = 90 * 24 * time.Hour
	DefaultFrontendPort = 7233
	DefaultUIPort       = 8233
)

// Options say what to start. The zero value is a server in memory, without Web
// UI, on a free port.
type Options struct {
	// Dir holds the database; it is made if it is absent. If it is empty, everything is
	// kept in memory, or in Database.
	Dir string
	// Database is the URL of a PostgreSQL server, postgres://…/NAME, that keeps
	// everything instead: in the databases NAME ("temporal" if the URL has none) and
	// NAME_visibility, which are made if they are absent. One server at a time may run on
	// them.
	Database string
	// FrontendPort and UIPort are the ports to listen on. If one is taken, another free
	// one is used. Zero means any free port.
	FrontendPort int
	UIPort       int
	// UI says whether to serve the Web UI.
	UI bool
	// Namespace is registered if it is absent; empty means DefaultNamespace.
	Namespace string
	// Retention is how long the history of a closed workflow is kept; zero means
	// DefaultRetention.
	Retention time.Duration
	// HistoryEvents is the length of a history from which on the server suggests to
	// continue as new; zero is the server's default, 4,096.
	HistoryEvents int
	// SearchAttributes are registered in Namespace if they are absent.
	SearchAttributes map[string]enums.IndexedValueType
	// Log receives the server's warnings and errors; nil drops them.
	Log *zap.Logger

	// locked says that another process has locked Dir for this server.
	locked bool
}

func (o Options) withDefaults() Options {
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if o.Retention == 0 {
		o.Retention = DefaultRetention
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return o
}

// loopback is the only address anything binds to: the server has no
// authorization.
const loopback = "127.0.0.1"

// ports holds one port for each service that listens.
type ports struct {
	frontend, http, history, matching, worker, ui int
}

// choosePorts finds free ports. All are held until the last one is found, so that no two
// are the same. They are released together just before the server takes them, because the
// server can only be told their numbers.
func choosePorts(frontend, ui int) (_ ports, err error) {
	var held []net.Listener
	defer func() {
		for _, l := range held {
			err = errors.Join(err, l.Close())
		}
	}()
	choose := func(wanted int) int {
		var l net.Listener
		if err != nil {
			return 0
		}
		if l, err = listen(wanted); err != nil {
			return 0
		}
		held = append(held, l)
		return l.Addr().(*net.TCPAddr).Port
	}
	// The wanted ports come first, so that none of them is taken as a free one.
	p := ports{frontend: choose(frontend), ui: choose(ui)}
	p.http, p.history, p.matching, p.worker = choose(0), choose(0), choose(0), choose(0)
	return p, err
}

func listen(wanted int) (net.Listener, error) {
	if wanted != 0 {
		if l, err := net.Listen("tcp", hostPort(wanted)); err == nil {
			return l, nil
		}
	}
	// From 32768 on (on Linux), the kernel gives ports to outgoing connections. One of
	// these could take a port from us before the server listens, so we choose a lower
	// one.
	for range 100 {
		if l, err := net.Listen("tcp", hostPort(lowestPort+rand.IntN(ephemeral-lowestPort))); err == nil {
			return l, nil
		}
	}
	l, err := net.Listen("tcp", hostPort(0))
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	return l, nil
}

// Free ports are searched from lowestPort up to ephemeral.
const (
	lowestPort = 10000
	ephemeral  = 32768
)

func hostPort(port int) string {
	return net.JoinHostPort(loopback, strconv.Itoa(port))
}
