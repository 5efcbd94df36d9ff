package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.uber.org/zap/exp/zapslog"

	sdklog "go.temporal.io/sdk/log"

	"log/slog"

	"github.com/fulgurite/fulgurite/internal/stack"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

// addresses say where the stack of a directory can be reached. The file lies in
// the directory while the stack runs.
type addresses struct {
	PID      int    `json:"pid"`
	Temporal string `json:"temporal"`
	UI       string `json:"ui"`
	Gateway  string `json:"gateway"`
}

func (s *shared) addressFile() string { return filepath.Join(s.Dir, "stack.json") }

// announce writes the addresses of a running stack.
func (s *shared) announce(st *stack.Stack) error {
	return writeJSON(s.addressFile(), addresses{os.Getpid(), st.TemporalAddress(), st.UIURL(), st.GatewayURL()})
}

func (s *shared) retract() { _ = os.Remove(s.addressFile()) } // stale addresses only cost a failed connection

// addresses of the stack that runs on the directory, zero when none does.
func (s *shared) addresses() (addresses, error) {
	var a addresses
	data, err := os.ReadFile(s.addressFile())
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("%s: %w", s.addressFile(), err)
	}
	return a, nil
}

// dial connects to Temporal: where TEMPORAL_ADDRESS or a profile of Temporal's
// own configuration says, else to the stack of the directory.
func (s *shared) dial(ctx context.Context, t *terminal) (client.Client, error) {
	c, _, err := s.dialNamespace(ctx, t)
	return c, err
}

// dialNamespace is dial that also tells the namespace.
func (s *shared) dialNamespace(ctx context.Context, t *terminal) (client.Client, string, error) {
	options, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return nil, "", fmt.Errorf("read Temporal's client configuration: %w", err)
	}
	options.Logger = sdklog.NewStructuredLogger(slog.New(zapslog.NewHandler(s.logger(ctx, t.err).Core())))
	if options.HostPort == "" || options.HostPort == client.DefaultHostPort {
		a, err := s.addresses()
		if err != nil {
			return nil, "", err
		}
		if a.Temporal != "" {
			options.HostPort = a.Temporal
		}
	}
	c, err := client.DialContext(ctx, options)
	if err != nil {
		return nil, "", fmt.Errorf("no Temporal at %q: start `fulgurite dev%s` in another terminal, or set TEMPORAL_ADDRESS (%w)", options.HostPort, s.flag(), err)
	}
	return c, cmp.Or(options.Namespace, client.DefaultNamespace), nil
}

// recordFlags are of commands that work on the records of a fleet too.
type recordFlags struct {
	Store string `help:"Store to use instead of that of --dir: postgres://… or the path of an SQLite file." env:"FULGURITE_STORE" placeholder:"URL"`
	Blobs string `help:"Directory of blobs to use instead of that of --dir." env:"FULGURITE_BLOBS" placeholder:"DIR" type:"path"`
}

// openRecords opens a store and blobs, also while a stack runs. The schema of a directory's own store is
// brought up to date; that of a fleet is the fleet's business.
func (s *shared) openRecords(ctx context.Context, t *terminal, r recordFlags) (*store.Store, *blob.Store, error) {
	url, own := r.Store, r.Store == ""
	if own {
		url = s.layout().Database()
	}
	if path := strings.TrimPrefix(url, "sqlite://"); !strings.Contains(path, "://") {
		switch _, err := os.Stat(path); {
		case errors.Is(err, fs.ErrNotExist) && own:
			return nil, nil, usagef("no runs in %s: choose the directory with --dir, or start with `fulgurite demo`", s.Dir)
		case errors.Is(err, fs.ErrNotExist):
			return nil, nil, usagef("no store at %s", path) // opening it would make one
		}
	}
	db, err := store.Open(ctx, url, s.logger(ctx, t.err))
	if err != nil {
		return nil, nil, err
	}
	if own {
		err = db.Migrate(ctx)
	}
	var blobs *blob.Store
	if err == nil {
		blobs, err = blob.Open(cmp.Or(r.Blobs, s.layout().Blobs()))
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, blobs, nil
}
