package workers

import (
	"context"
	"io"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/workers/fleet"
)

// migrateCommand makes store and Temporal ready for the other processes.
type migrateCommand struct {
	common   `embed:""`
	database `embed:""`
	temporal `embed:""`
}

// Run ends when both are ready. To run it again, or several at once, does no harm.
func (c *migrateCommand) Run(ctx context.Context, stderr io.Writer) error {
	return c.do(ctx, stderr, c.migrate)
}

func (c *migrateCommand) migrate(ctx context.Context, p *process) error {
	records, err := p.connect(ctx, c.database)
	if err != nil {
		return err
	}
	if err := p.await(ctx, "store's tables", func(ctx context.Context) error { return records.Migrate(ctx, false) }); err != nil {
		return err
	}
	client, namespace, err := p.dial(ctx, c.temporal)
	if err != nil {
		return err
	}
	added, err := fleet.Cluster{Client: client, Namespace: namespace}.RegisterSearchAttributes(ctx)
	if err != nil {
		// Runs work without them; lists of runs show less.
		p.log.Warn("search attributes not registered", zap.Error(err))
		return nil
	}
	p.log.Info("ready", zap.Strings("search attributes added", added))
	return nil
}
