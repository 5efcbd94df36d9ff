package devserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/temporal"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"
)

const (
	// StopTimeout bounds Stop.
	StopTimeout = 30 * time.Second
	// startTimeout bounds Start. A laptop takes a second; a machine that builds
	// beside it takes several.
	startTimeout = time.Minute
)

// Server is a running Temporal server. Its methods may be called from any
// goroutine.
type Server struct {
	options Options
	ports   ports
	silent  atomic.Bool
	lock    *os.File // nil in memory
	inner   temporal.Server
	ui      *webUI // nil without UI
	// stopDraining ends what Recover left in the background; nil without.
	stopDraining func()
	stopped      chan struct{}
	claimed      atomic.Bool
	err          error // of stopping; read after stopped
}

// Start starts a server and returns when it answers. The context bounds the
// start alone; Stop ends the server.
func Start(ctx context.Context, options Options) (*Server, error) {
	s := &Server{options: options.withDefaults(), stopped: make(chan struct{})}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.start(ctx); err != nil {
		return nil, fmt.Errorf("start temporal server: %w", errors.Join(err, s.Stop()))
	}
	return s, nil
}

// Address is where clients connect, host:port.
func (s *Server) Address() string { return hostPort(s.ports.frontend) }

// ListensAt reports whether the wish for a frontend's port was fulfilled.
func (s *Server) ListensAt(port int) bool { return s.ports.frontend == port }

// Namespace is the one that is registered.
func (s *Server) Namespace() string { return s.options.Namespace }

// UIURL is where the Web UI is, or empty without it.
func (s *Server) UIURL() string {
	if !s.options.UI {
		return ""
	}
	return "http://" + hostPort(s.ports.ui)
}

// Client connects a client that the caller closes, before Stop.
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

// Stop ends the server within StopTimeout and lets go of its directory. A second
// call waits for the first and returns the same. An error means that the server
// did not end in time; its data are safe, as they are against a crash.
func (s *Server) Stop() error {
	if s.claimed.CompareAndSwap(false, true) {
		s.err = s.stop()
		close(s.stopped)
	}
	<-s.stopped
	return s.err
}

func (s *Server) start(ctx context.Context) error {
	d, err := s.openDatabases(ctx)
	if err != nil {
		return err
	}
	if err := register(ctx, d.history, s.options); err != nil {
		return fmt.Errorf("register namespace %s: %w", s.options.Namespace, err)
	}
	// Between choosing ports and listening on them somebody else may take one.
	for range portTries {
		if s.ports, err = choosePorts(s.options.FrontendPort, s.options.UIPort); err != nil {
			return err
		}
		if err = s.listen(d); err == nil || !strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
			break
		}
	}
	if err != nil {
		return err
	}
	if err := s.awaitNamespace(ctx); err != nil {
		return err
	}
	if s.options.UI {
		s.ui = newUI(s.ports, s.options.Namespace)
		return s.ui.start(ctx, s.UIURL())
	}
	return nil
}

// portTries is how often other ports are tried where chosen ones were taken.
const portTries = 5

// listen makes the server and starts it on the chosen ports.
func (s *Server) listen(d databases) error {
	quiet := s.options.Log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return quietCore{core, &s.silent}
	}))
	inner, err := temporal.NewServer(
		temporal.WithConfig(configuration(s.ports, d)),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(hosts(s.ports)),
		temporal.WithDynamicConfigClient(dynamic(s.options)),
		temporal.WithLogger(log.NewZapLogger(quiet)),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper {
			return authorization.NewNoopClaimMapper()
		}),
	)
	if err != nil {
		return err
	}
	s.inner = inner
	return inner.Start()
}

func (s *Server) openDatabases(ctx context.Context) (databases, error) {
	if s.options.Database != "" {
		return postgresDatabases(ctx, s.options.Database)
	}
	database, err := s.openSQLite()
	return databases{database, database}, err
}

func (s *Server) openSQLite() (*config.SQL, error) {
	if s.options.Dir == "" {
		return memoryDatabase(), nil
	}
	if err := os.MkdirAll(s.options.Dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	if s.lock, err = lock(s.options.Dir); err != nil {
		return nil, err
	}
	return fileDatabase(s.options.Dir)
}

// awaitNamespace waits until a client can work: the server answers before it has
// read its namespaces.
func (s *Server) awaitNamespace(ctx context.Context) error {
	c, err := s.Client(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return until(ctx, func() error {
		_, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: s.options.Namespace})
		return err
	})
}

func (s *Server) stop() error {
	s.silent.Store(true)
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

// end stops what was started, in reverse.
func (s *Server) end() (err error) {
	if s.stopDraining != nil {
		s.stopDraining()
	}
	if s.ui != nil {
		s.ui.stop()
	}
	if s.inner != nil {
		err = s.inner.Stop()
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}
