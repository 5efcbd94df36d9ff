package workers

import (
	"context"
	"fmt"
	"io"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// mendCommand lets runs go on after the store or Temporal came from an earlier time.
type mendCommand struct {
	common   `embed:""`
	database `embed:""`
	temporal `embed:""`
}

// Run ends when all runs can go on. If it is interrupted, or run again, it does the same once
// more, and no harm.
func (c *mendCommand) Run(ctx context.Context, stderr io.Writer) error {
	return c.do(ctx, stderr, c.mend)
}

func (c *mendCommand) mend(ctx context.Context, p *process) error {
	records, err := p.openAny(ctx, c.database)
	if err != nil {
		return err
	}
	if err := p.await(ctx, "end of the other processes", func(ctx context.Context) error { return idle(ctx, records) }); err != nil {
		return err
	}
	client, namespace, err := p.dial(ctx, c.temporal)
	if err != nil {
		return err
	}
	mended, err := runstate.Mender{Client: client, Namespace: namespace, Store: records.Store}.Mend(ctx)
	if err != nil {
		return fmt.Errorf("let runs go on from what is on record: %w", err)
	}
	if err := records.Store.SetMended(ctx); err != nil {
		return err
	}
	p.log.Info("runs go on from what is on record once the other processes are started", zap.Strings("reset", mended.Rewound), zap.Strings("started again", mended.Restarted), zap.Strings("forgotten runs removed from Temporal", mended.Removed))
	return nil
}

// idle returns an error if a process of the fleet works, as far as leases tell.
func idle(ctx context.Context, records fleet.Records) error {
	for _, role := range []record.Role{record.Gateway, record.Sampler} {
		leases, err := records.Store.Leases(ctx, role)
		if err != nil {
			return err
		}
		if len(leases) > 0 {
			return fmt.Errorf("%s %s works: stop all processes of the fleet first", role, leases[0].Name)
		}
	}
	return nil
}
