package main

import (
	"context"
	"errors"

	"github.com/fulgurite/fulgurite/internal/stack"
)

type devCommand struct {
	ports  `embed:""`
	Queues []string `help:"Task queues to run agents for, beside rollout-cpu." name:"queue"`
	Agents int      `help:"Most agents that run at once (0: 32 a core)." default:"0"`
}

func (c *devCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	st, err := s.start(ctx, t, c.ports, c.Queues, c.Agents)
	if err != nil {
		return err
	}
	t.printf("Fulgurite is up. State lies in %s\n\n  Temporal   %s\n  Web UI     %s\n  Gateway    %s\n\n", s.Dir, st.TemporalAddress(), st.UIURL(), st.GatewayURL())
	if at := st.TraceAddress(); at != "" {
		t.printf("  Spans      %s (gRPC)\n\n", at)
	}
	t.printf("Start a run in another terminal:  fulgurite train spec.yaml%s\nCtrl-C stops; runs go on at the next start.\n", s.flag())
	defer s.retract()
	<-ctx.Done()
	t.printf("\nStopping.\n")
	return st.Close()
}

// start brings the stack of the directory up and announces its addresses.
func (s *shared) start(ctx context.Context, t *terminal, p ports, queues []string, concurrent int) (*stack.Stack, error) {
	if err := s.forget(); err != nil {
		return nil, err
	}
	if err := p.free(s.layout()); err != nil {
		return nil, err
	}
	if err := s.roomToStart(); err != nil {
		return nil, err
	}
	st, err := stack.Start(ctx, stack.Options{
		Dir: s.Dir, UI: true, Frontend: p.temporal().wanted(), UIPort: p.ui().wanted(), GatewayPort: p.gateway().wanted(), TracePort: p.TracePort,
		Queues: queues, Agents: agents(), Concurrency: concurrent, Log: s.logger(ctx, t.err), ServerLog: s.serverLogger(ctx, t.err),
	})
	if err != nil {
		return nil, err
	}
	if err = p.check(st, t); err == nil {
		err = s.announce(st)
	}
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	go s.watchSpace(ctx, t)
	return st, nil
}
