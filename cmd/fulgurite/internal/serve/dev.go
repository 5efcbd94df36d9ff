// Package serve holds the commands that run servers until they are stopped. It also
// starts the stack of a directory for other commands.
package serve

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/page"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/builtin"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/pageserver"
	"github.com/fulgurite/fulgurite/workers/stack"
)

// Dev is `fulgurite dev`.
type Dev struct {
	Ports    `embed:""`
	PagePort *int     `help:"The page's port (0: any; default: 8235, or a free one)." env:"FULGURITE_PAGE_PORT" placeholder:"PORT"`
	Queues   []string `help:"Task queues to run agents for, beside rollout-cpu." name:"queue"`
	Agents   int      `help:"Most agents that run at once (0: 32 a core, fewer if the system limits files or processes)." default:"0"`
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
	t.Printf("Fulgurite is up. State lies in %s\n\n  Page       %s\n  Temporal   %s\n  Web UI     %s\n  Gateway    %s\n\n", s.Dir, p.URL(), st.TemporalAddress(), st.UIURL(), st.GatewayURL())
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
	st, err := stack.Start(ctx, stack.Options{
		Dir: s.Dir, UI: true, Frontend: p.temporal().wanted(), UIPort: p.ui().wanted(), GatewayPort: p.gateway().wanted(), TracePort: p.TracePort,
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
	go s.WatchSpace(ctx, t)
	return st, nil
}
