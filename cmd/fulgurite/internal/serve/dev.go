// Package serve holds the commands that run servers until they are stopped. It also
// starts the stack of a directory for other commands.
package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/page"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/builtin"
	"github.com/fulgurite/fulgurite/internal/devserver"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/run/backup"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/pageserver"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// Dev is `fulgurite dev`.
type Dev struct {
	Ports    `embed:""`
	PagePort *int     `help:"The page's port (0: any; default: 8235, or a free one)." env:"FULGURITE_PAGE_PORT" placeholder:"PORT"`
	Queues   []string `help:"Task queues to run agents for, beside rollout-cpu." name:"queue"`
	Agents   int      `help:"Most agents that run at once (0: 32 a core, fewer if the system limits files, processes or memory)." default:"0"`
}

// Validate is called by kong.
func (c *Dev) Validate() (err error) {
	if c.Queues, err = spec.ParseQueues(c.Queues); err != nil {
		return fmt.Errorf("--queue: %w", err)
	}
	if c.Agents < 0 {
		return fmt.Errorf("--agents %d: give 0 or more", c.Agents)
	}
	return nil
}

// Run keeps the stack up until a signal comes.
func (c *Dev) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	if holder, err := s.Layout().Holder(); err == nil && holder == "" { // else Start reports the process that uses the directory
		if err := (port{"the page", "page-port", c.PagePort, pageserver.DefaultPort}).free(); err != nil {
			return err
		}
	}
	st, err := Start(ctx, s, t, c.Ports, c.Queues, c.Agents)
	if err != nil {
		return err
	}
	p, err := Page(ctx, s, t, st, c.PagePort)
	if err != nil {
		return errors.Join(err, Close(s, st))
	}
	t.Printf("Fulgurite is up. State lies in %s\n\n  Page       %s\n  Temporal   %s\n  Web UI     %s\n  Gateway    %s\n  Metrics    %s\n\n", s.Dir, p.URL(), st.TemporalAddress(), st.UIURL(), st.GatewayURL(), st.MetricsURL())
	if at := st.TraceAddress(); at != "" {
		t.Printf("  Spans      %s (gRPC)\n\n", at)
	}
	t.Printf("Start a run in another terminal:  %s\nCtrl-C stops; runs go on at the next start.\n", s.Command("train", "spec.yaml"))
	held, release := WhileHeld(ctx, st)
	defer release()
	<-held.Done()
	t.Printf("\nStopping.\n")
	return errors.Join(Lost(held), p.Close(), Close(s, st))
}

// Page serves the page of a stack.
func Page(ctx context.Context, s *state.Flags, t *terminal.Terminal, st *stack.Stack, port *int) (*pageserver.Served, error) {
	return page.Serve(ctx, s, st.Records, page.Stack{
		Dial: func(context.Context) (pageserver.Connection, error) {
			c, err := client.NewClientFromExisting(st.Client, client.Options{})
			return pageserver.Connection{Client: c, Namespace: st.Namespace(), UI: pageserver.UI(st.UIURL(), st.Namespace())}, err
		},
		Gateway: st.GatewayURL,
		Loaded:  st.Loaded,
	}, port, pageserver.Listening{}, s.Logger(ctx, t.Err))
}

// Start starts the stack of the directory and writes its addresses.
func Start(ctx context.Context, s *state.Flags, t *terminal.Terminal, p Ports, queues []string, concurrent int) (*stack.Stack, error) {
	if err := s.RemoveStaleAddresses(); err != nil {
		return nil, err
	}
	if err := p.free(s.Layout()); err != nil {
		return nil, err
	}
	if err := s.CheckSpace(); err != nil {
		return nil, err
	}
	metrics := p.metrics().wanted()
	st, err := stack.Start(ctx, stack.Options{
		Dir: s.Dir, UI: true, Frontend: p.temporal().wanted(), UIPort: p.ui().wanted(), GatewayPort: p.gateway().wanted(), MetricsPort: &metrics, TracePort: p.TracePort,
		Queues: queues, Agents: builtin.Agents(), Concurrency: concurrent, Log: s.Logger(ctx, t.Err), ServerLog: s.ServerLogger(ctx, t.Err),
	})
	if err != nil {
		return nil, err
	}
	if err = p.check(st, t); err == nil {
		err = s.WriteAddresses(st)
	}
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	for _, notice := range st.Notices {
		fmt.Fprintln(t.Err, notice)
	}
	sayMissing(ctx, s, t, st)
	go s.WatchSpace(ctx, t)
	return st, nil
}

// missingTime bounds the search for missing blobs.
const missingTime = 10 * time.Second

// sayMissing says if the directory lacks a blob that a row of its store names: then the two
// are not from one moment, or the blob is lost.
func sayMissing(ctx context.Context, s *state.Flags, t *terminal.Terminal, st *stack.Stack) {
	ctx, cancel := context.WithTimeout(ctx, missingTime)
	defer cancel()
	missing, err := backup.Missing(ctx, st.Store, st.Blobs)
	if err != nil || missing == nil {
		return // whoever reads a manifest that is damaged says so
	}
	fmt.Fprintf(t.Err, "%s lacks blob %s of %s: blobs and store are from different times, or the blob is lost. If there is a backup, stop this and make a new directory from it: `%s`\n",
		s.Layout().Blobs(), missing.Digest, missing.For, shell.Place{}.Command("restore", "BACKUP", "--to", "DIR"))
}

// checkEvery is how often the directory of a running stack is checked. A new stack on the
// same path takes longer than that to start.
const checkEvery = time.Second

// directory can be checked by WhileHeld. It is a stack or a Temporal server alone.
type directory interface{ CheckDirectory() error }

// WhileHeld returns a context that ends when ctx ends, or when the directory of d is
// removed or replaced. Lost then returns what happened. A process that went on would
// write into the files of its successor, and delete files that only the successor needs.
func WhileHeld(ctx context.Context, d directory) (_ context.Context, release func()) {
	held, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(checkEvery)
		defer tick.Stop()
		for {
			select {
			case <-held.Done():
				return
			case <-tick.C:
				if err := d.CheckDirectory(); errors.Is(err, devserver.ErrLost) {
					cancel(err)
				}
			}
		}
	}()
	return held, func() { cancel(nil); <-ended }
}

// Lost returns the error that wraps devserver.ErrLost and names the directory, if held
// has ended for that reason, and else nil.
func Lost(held context.Context) error {
	if err := context.Cause(held); errors.Is(err, devserver.ErrLost) {
		return err
	}
	return nil
}

// Close stops the stack of the directory and removes its addresses, unless the
// directory is another stack's by now.
func Close(s *state.Flags, st *stack.Stack) error {
	if st.CheckDirectory() == nil {
		s.RemoveAddresses()
	}
	return st.Close()
}

// defaultGatewayPort is the gateway's port. It follows the ports that users of Temporal
// expect for Temporal and its Web UI.
const defaultGatewayPort = 8234

// defaultMetricsPort is the port of the metrics, after those of the gateway and the page.
const defaultMetricsPort = 8236

// Ports holds the ports on which the parts of a stack listen. A port that a flag gives
// must be free. If a default port is in use, a free one takes its place.
type Ports struct {
	Port        *int `help:"Temporal's port (0: any; default: 7233, or a free one)." env:"FULGURITE_PORT" placeholder:"PORT"`
	UIPort      *int `help:"The Web UI's port (0: any; default: 8233, or a free one)." env:"FULGURITE_UI_PORT" name:"ui-port" placeholder:"PORT"`
	GatewayPort *int `help:"The gateway's port (0: any; default: 8234, or a free one)." env:"FULGURITE_GATEWAY_PORT" placeholder:"PORT"`
	MetricsPort *int `help:"The port of the metrics, which are at /metrics (0: any; default: 8236, or a free one)." env:"FULGURITE_METRICS_PORT" placeholder:"PORT"`
	TracePort   int  `help:"Port for spans by gRPC (0: none; by HTTP the gateway takes them)." default:"0" env:"FULGURITE_TRACE_PORT"`
}

func (p Ports) temporal() port {
	return port{"Temporal", "port", p.Port, devserver.DefaultFrontendPort}
}

func (p Ports) ui() port { return port{"the Web UI", "ui-port", p.UIPort, devserver.DefaultUIPort} }

func (p Ports) gateway() port {
	return port{"the gateway", "gateway-port", p.GatewayPort, defaultGatewayPort}
}

func (p Ports) metrics() port {
	return port{"the metrics server", "metrics-port", p.MetricsPort, defaultMetricsPort}
}

func (p Ports) trace() port { return port{"the trace server", "trace-port", &p.TracePort, 0} }

// free checks that each port that a flag gives is free. It checks nothing if the
// directory is in use, because the start then says who uses it.
func (p Ports) free(l stack.Layout) error {
	holder, err := l.Holder()
	if err != nil || holder != "" {
		return err
	}
	var all []error
	for _, one := range []port{p.temporal(), p.ui(), p.gateway(), p.metrics(), p.trace()} {
		all = append(all, one.free())
	}
	return errors.Join(all...)
}

// check compares the ports of a stack with those that flags give, and prints where a
// default port was in use.
func (p Ports) check(st *stack.Stack, t *terminal.Terminal) error {
	return errors.Join(
		p.temporal().check(st.TemporalAddress(), t), p.ui().check(st.UIURL(), t),
		p.gateway().check(st.GatewayURL(), t), p.metrics().check(st.MetricsURL(), t), p.trace().check(st.TraceAddress(), t),
	)
}

// port is the port of one part of the stack.
type port struct {
	of, flag string
	given    *int // nil if the flag is not given
	usual    int
}

func (p port) wanted() int {
	if p.given == nil {
		return p.usual
	}
	return *p.given
}

func (p port) free() error {
	if p.given == nil || *p.given == 0 {
		return nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(*p.given)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return p.taken()
	case err != nil:
		return terminal.Usagef("--%s %d: %v", p.flag, *p.given, err)
	}
	return l.Close()
}

func (p port) taken() error {
	return terminal.Usagef("--%s %d: the port is in use; give another one, or 0 for any", p.flag, *p.given)
}

// check compares the port of an address with the wanted one. The address is host:port, a
// URL, or empty.
func (p port) check(address string, t *terminal.Terminal) error {
	if u, err := url.Parse(address); err == nil && strings.Contains(address, "://") {
		address = u.Host
	}
	_, got, err := net.SplitHostPort(address)
	if wanted := p.wanted(); err != nil || wanted == 0 || got == strconv.Itoa(wanted) {
		return nil // there is none, or it is as it should be
	}
	if p.given != nil {
		return p.taken() // by somebody who was faster
	}
	fmt.Fprintf(t.Err, "Port %d is in use: %s listens on %s.\n", p.usual, p.of, got)
	return nil
}

// Temporal is `fulgurite temporal`. It runs the one part of `fulgurite dev` that a
// fleet's other processes don't include: the Temporal server.
type Temporal struct {
	Port     int    `help:"The frontend's port (0: any)." default:"7233" env:"FULGURITE_PORT"`
	UI       bool   `help:"Serve the Web UI too." name:"ui" default:"true" negatable:""`
	UIPort   *int   `help:"The Web UI's port (0: any; default: 8233, or a free one)." env:"FULGURITE_UI_PORT" name:"ui-port" placeholder:"PORT"`
	Database string `help:"PostgreSQL to keep everything in (default: SQLite, in the state's directory)." env:"FULGURITE_TEMPORAL_DATABASE" placeholder:"URL"`
}

// Run keeps the server up until a signal comes.
func (c *Temporal) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	ui := Ports{UIPort: c.UIPort}.ui()
	if c.UI {
		if err := ui.free(); err != nil {
			return err
		}
	}
	o := devserver.Options{
		Dir: s.Layout().Temporal(), Database: c.Database, FrontendPort: c.Port, UIPort: ui.wanted(), UI: c.UI,
		SearchAttributes: workflows.SearchAttributes(), Log: s.ServerLogger(ctx, t.Err),
	}
	if c.Database != "" {
		o.Dir = ""
	}
	server, err := devserver.Start(ctx, o)
	if err != nil {
		return err
	}
	if c.Port != 0 && !server.ListensAt(c.Port) {
		return errors.Join(port{flag: "port", given: &c.Port}.taken(), server.Stop())
	}
	if err := ui.check(server.UIURL(), t); err != nil {
		return errors.Join(err, server.Stop())
	}
	if o.Dir != "" {
		// Other commands find the server through this file of the directory.
		if err := state.WriteJSON(s.AddressFile(), state.Addresses{PID: os.Getpid(), Temporal: server.Address(), UI: server.UIURL()}); err != nil {
			return errors.Join(err, server.Stop())
		}
	}
	t.Printf("Temporal   %s\n", server.Address())
	if c.UI {
		t.Printf("Web UI     %s\n", server.UIURL())
	}
	held, release := WhileHeld(ctx, server)
	defer release()
	<-held.Done()
	if o.Dir != "" && server.CheckDirectory() == nil {
		s.RemoveAddresses()
	}
	return errors.Join(Lost(held), server.Stop())
}
