package main

import (
	"context"
	"errors"

	"github.com/fulgurite/fulgurite/internal/devserver"
	"github.com/fulgurite/fulgurite/internal/stack"
)

// gatewayPort is where the gateway listens unless the port is taken.
const gatewayPort = 8234

type devCommand struct {
	Queues []string `help:"Task queues to run agents for, beside rollout-cpu." name:"queue"`
	Agents int      `help:"Most agents that run at once (0: 32 a core)." default:"0"`
}

func (c *devCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	st, err := s.start(ctx, t, c.Queues, c.Agents)
	if err != nil {
		return err
	}
	t.printf("Fulgurite is up. State lies in %s\n\n  Temporal   %s\n  Web UI     %s\n  Gateway    %s\n\n", s.Dir, st.TemporalAddress(), st.UIURL(), st.GatewayURL())
	t.printf("Start a run in another terminal:  fulgurite train spec.yaml --dir %s\nCtrl-C stops; runs go on at the next start.\n", s.Dir)
	<-ctx.Done()
	t.printf("\nStopping.\n")
	s.retract()
	return st.Close()
}

// start brings the stack of the directory up and announces its addresses.
func (s *shared) start(ctx context.Context, t *terminal, queues []string, concurrent int) (*stack.Stack, error) {
	st, err := stack.Start(ctx, stack.Options{
		Dir: s.Dir, UI: true, Frontend: devserver.DefaultFrontendPort, UIPort: devserver.DefaultUIPort, GatewayPort: gatewayPort,
		Queues: queues, Agents: agents(), Concurrency: concurrent, Log: s.logger(t.err),
	})
	if err != nil {
		return nil, err
	}
	if err := s.announce(st); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return st, nil
}
