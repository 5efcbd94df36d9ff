package devserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
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
