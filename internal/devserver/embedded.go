//go:build !serverprocess

package devserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/temporal"
	"go.uber.org/dig"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// inner is the server, running in this process.
type inner struct {
	server temporal.Server
	ui     *webUI // nil without UI
	silent atomic.Bool
}

func (s *Server) start(ctx context.Context) error {
	if err := nameUser(); err != nil {
		return err
	}
	d, err := s.openDatabases(ctx)
	if err != nil {
		return err
	}
	if err := register(ctx, d.history, s.options); err != nil {
		return fmt.Errorf("register namespace %s: %w", s.options.Namespace, err)
	}
	// Between choosing ports and listening on them, another process may take one.
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
		s.inner.ui = newUI(s.ports, s.options.Namespace)
		return s.inner.ui.start(ctx, s.UIURL())
	}
	return nil
}

// portTries is how often ports are chosen, if another process takes a chosen one.
const portTries = 5

// listen makes the server and starts it on the chosen ports.
func (s *Server) listen(d databases) error {
	quiet := s.options.Log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return quietCore{core, &s.inner.silent}
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
		return dig.RootCause(err) // what surrounds it names the server's own constructors
	}
	s.inner.server = inner
	return inner.Start()
}

func (s *Server) openDatabases(ctx context.Context) (databases, error) {
	if s.options.Database != "" {
		return postgresDatabases(ctx, s.options.Database)
	}
	database, err := s.openSQLite(ctx)
	return databases{database, database}, err
}

func (s *Server) openSQLite(ctx context.Context) (*config.SQL, error) {
	if s.options.Dir == "" {
		return memoryDatabase(), nil
	}
	if err := os.MkdirAll(s.options.Dir, 0o755); err != nil {
		return nil, err
	}
	if !s.options.locked {
		var err error
		if s.lock, err = lock(s.options.Dir); err != nil {
			return nil, err
		}
	}
	return fileDatabase(ctx, s.options.Dir)
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

// end stops what was started, in reverse.
func (s *Server) end() (err error) {
	if s.inner.ui != nil {
		s.inner.ui.stop()
	}
	if s.inner.server != nil {
		err = s.inner.server.Stop()
	}
	if s.options.Dir != "" && s.options.Database == "" && s.inner.server != nil && err == nil {
		emptyLog(filepath.Join(s.options.Dir, databaseFile), s.options.Log)
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

// nameUser lets os/user answer who runs this process. The server asks that when it starts,
// and can't start without an answer. For a user id without an entry in /etc/passwd, as
// containers have it, os/user knows only USER and HOME. They are set for the question
// alone, because os/user keeps its answer and programs of users are not to see them.
func nameUser() (err error) {
	for name, value := range map[string]string{"USER": strconv.Itoa(os.Getuid()), "HOME": "/"} {
		before, set := os.LookupEnv(name)
		if before != "" {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("name the user: %w", err)
		}
		defer func() {
			if set {
				err = errors.Join(err, os.Setenv(name, before))
			} else {
				err = errors.Join(err, os.Unsetenv(name))
			}
		}()
	}
	if _, err := user.Current(); err != nil {
		return fmt.Errorf("the user id %d has no entry in /etc/passwd: set USER and HOME (%w)", os.Getuid(), err)
	}
	return nil
}
