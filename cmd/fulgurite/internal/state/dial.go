package state

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.uber.org/zap/exp/zapslog"
	"google.golang.org/grpc"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workers/fleet"
	"github.com/fulgurite/fulgurite/workers/stack"
)

// ErrNoStack means that no stack uses the directory.
var ErrNoStack = errors.New("no stack runs")

// startTimeout limits the time from when a stack takes its directory to when it answers.
// It covers the minute that Temporal may take to start, and the start of the other parts.
const startTimeout = 2 * time.Minute

// Dial connects to the Temporal server that TEMPORAL_ADDRESS or a profile of Temporal's
// own configuration names. If neither is set, it connects to the stack of the directory
// and to no other. It waits for a stack that is starting.
func (s *Flags) Dial(ctx context.Context, t *terminal.Terminal) (client.Client, error) {
	c, _, err := s.DialNamespace(ctx, t)
	return c, err
}

// DialNamespace does what Dial does, and also returns the namespace.
func (s *Flags) DialNamespace(ctx context.Context, t *terminal.Terminal) (client.Client, string, error) {
	options, err := fleet.TemporalOptions()
	if err != nil {
		return nil, "", err
	}
	options.Logger = sdklog.NewStructuredLogger(slog.New(zapslog.NewHandler(s.Logger(ctx, t.Err).Core(), zapslog.AddStacktraceAt(math.MaxInt))))
	named := options.HostPort != ""
	if !named {
		if options.HostPort, err = s.await(ctx, t); err != nil {
			return nil, "", err
		}
		// The next stack on the directory may be at another address.
		options.ConnectionOptions.DialOptions = append(options.ConnectionOptions.DialOptions, grpc.WithContextDialer(s.connect))
	}
	c, err := client.DialContext(ctx, options)
	if err != nil && named {
		return nil, "", fmt.Errorf("no Temporal at %q, which TEMPORAL_ADDRESS or a profile of Temporal names: start `%s` there, or unset it to use the stack of %s (%w)",
			options.HostPort, s.TemporalCommand(options.HostPort), s.Dir, err)
	}
	if err != nil {
		return nil, "", fmt.Errorf("no Temporal at %q: start `%s` in another terminal, or set TEMPORAL_ADDRESS (%w)", options.HostPort, s.Command("dev"), err)
	}
	return c, cmp.Or(options.Namespace, client.DefaultNamespace), nil
}

// TemporalCommand returns the command that starts a Temporal server at an address, on the
// machine that has it.
func (s *Flags) TemporalCommand(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == defaultTemporalPort {
		return s.Command("temporal")
	}
	return s.Command("temporal", "--port", port)
}

// defaultTemporalPort is where `fulgurite temporal` listens unless told otherwise.
const defaultTemporalPort = "7233"

// TemporalAddress returns the address that Dial connects to. It is empty if none is
// configured and no stack of the directory is ready.
func (s *Flags) TemporalAddress() string {
	if options, err := fleet.TemporalOptions(); err != nil || options.HostPort != "" {
		return options.HostPort
	}
	at, err := s.running()
	if err != nil {
		return ""
	}
	return at
}

// Own reports whether Dial connects to the stack of the directory. The runs of that stack
// are recorded in the directory.
func (s *Flags) Own() bool {
	at, err := s.running()
	return err == nil && at != "" && at == s.TemporalAddress()
}

// running returns the address of the Temporal server of the directory's stack. It returns
// ErrNoStack if no stack uses the directory, and "" while the stack is starting.
func (s *Flags) running() (string, error) {
	holder, err := s.Layout().Holder()
	if err != nil {
		return "", fmt.Errorf("find out who has %s: %w", s.Dir, err)
	}
	if holder == "" {
		return "", fmt.Errorf("%w in %s: start `%s` in another terminal, or set TEMPORAL_ADDRESS to use another Temporal", ErrNoStack, s.Dir, s.Command("dev"))
	}
	a, err := s.Addresses()
	if err != nil || strconv.Itoa(a.PID) != holder {
		return "", err
	}
	return a.Temporal, nil
}

// await waits until running returns an address or an error, and returns that.
func (s *Flags) await(ctx context.Context, t *terminal.Terminal) (string, error) {
	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for said := false; ; said = true {
		at, err := s.running()
		if at != "" || err != nil {
			return at, err
		}
		if !said {
			fmt.Fprintf(t.Err, "The stack of %s is coming up, waiting.\n", s.Dir)
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-deadline.C:
			holder, err := s.Layout().Holder()
			return "", errors.Join(fmt.Errorf("the stack of %s (process %s) has not come up within %s: see what it printed, or end it and start `%s` again",
				s.Dir, cmp.Or(holder, "unknown"), startTimeout, s.Command("dev")), err)
		case <-tick.C:
		}
	}
}

// connect reaches the stack that runs on the directory now.
func (s *Flags) connect(ctx context.Context, _ string) (net.Conn, error) {
	at, err := s.running()
	if err == nil && at == "" {
		err = fmt.Errorf("the stack of %s is coming up", s.Dir)
	}
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", at)
}

// RecordFlags are the flags of commands that also work on the records of a fleet.
type RecordFlags struct {
	Store string `help:"Store to use instead of that of --dir: postgres://… or the path of an SQLite file." env:"FULGURITE_STORE" placeholder:"URL"`
	Blobs string `help:"Directory of blobs to use instead of that of --dir." env:"FULGURITE_BLOBS" placeholder:"DIR" type:"path"`
}

// OpenRecords opens the store and the blobs. It works while a stack runs too. It migrates
// the schema of the directory's own store, but not that of a fleet's store, which the
// fleet migrates.
func (s *Flags) OpenRecords(ctx context.Context, t *terminal.Terminal, r RecordFlags) (fleet.Records, error) {
	url, own := r.Store, r.Store == ""
	if own {
		url = s.Layout().Database()
	}
	path, err := store.FilePath(url)
	if err != nil {
		return fleet.Records{}, terminal.Usagef("%v", err)
	}
	if path != "" {
		switch _, err := os.Stat(path); {
		case errors.Is(err, fs.ErrNotExist) && own:
			return fleet.Records{}, terminal.Usagef("no runs in %s: choose the directory with --dir, or start with `%s`", s.Dir, s.Command("demo"))
		case errors.Is(err, fs.ErrNotExist):
			return fleet.Records{}, terminal.Usagef("no store at %s", path) // opening it would make one
		}
	}
	records, err := fleet.Connect(ctx, url, cmp.Or(r.Blobs, s.Layout().Blobs()), s.Logger(ctx, t.Err))
	if err != nil {
		return records, err
	}
	switch {
	case own:
		err = records.Migrate(ctx, r.Blobs == "")
	default:
		err = records.Store.Ready(ctx)
		if err == nil && r.Blobs != "" { // runs of a fleet are read without their blobs too
			err = records.CheckBlobs(ctx)
		}
	}
	if err != nil {
		return fleet.Records{}, errors.Join(fmt.Errorf("store %s: %w", store.Redacted(url), err), records.Close())
	}
	return records, nil
}

// Addresses holds the addresses of a directory's stack. Their file exists in the
// directory while the stack runs.
type Addresses struct {
	PID      int    `json:"pid"`
	Temporal string `json:"temporal"`
	UI       string `json:"ui"`
	Gateway  string `json:"gateway"`
}

// AddressFile returns the path of the file with the addresses.
func (s *Flags) AddressFile() string { return filepath.Join(s.Dir, "stack.json") }

// WriteAddresses writes those of a running stack.
func (s *Flags) WriteAddresses(st *stack.Stack) error {
	return WriteJSON(s.AddressFile(), Addresses{os.Getpid(), st.TemporalAddress(), st.UIURL(), st.GatewayURL()})
}

// RemoveStaleAddresses removes the addresses of a stack that was killed. Its successor may have the
// same process id, in a container for example, and has not announced itself yet.
func (s *Flags) RemoveStaleAddresses() error {
	holder, err := s.Layout().Holder()
	if err == nil && holder == "" {
		s.RemoveAddresses()
	}
	return err
}

// RemoveAddresses removes the file of addresses.
func (s *Flags) RemoveAddresses() { _ = os.Remove(s.AddressFile()) } // stale addresses only cost a failed connection

// Addresses returns the content of the file, or zero if there is no file. A stack that
// was killed leaves its file, so running tells whether a stack still runs.
func (s *Flags) Addresses() (Addresses, error) {
	var a Addresses
	data, err := os.ReadFile(s.AddressFile())
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("%s: %w", s.AddressFile(), err)
	}
	return a, nil
}
