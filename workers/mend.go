package workers

import (
	"context"
	"fmt"
	"io"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/workers/fleet"
	"github.com/fulgurite/fulgurite/workflows"
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
	temporal, namespace, err := p.dial(ctx, c.temporal)
	if err != nil {
		return err
	}
	if err := p.await(ctx, "end of the other processes", func(ctx context.Context) error { return idle(ctx, records, temporal) }); err != nil {
		return err
	}
	mended, err := runstate.Mender{Client: temporal, Namespace: namespace, Store: records.Store}.Mend(ctx)
	if err != nil {
		return fmt.Errorf("let runs go on from what is on record: %w", err)
	}
	if err := records.Store.SetMended(ctx); err != nil {
		return err
	}
	p.log.Info("runs go on from what is on record once the other processes are started", zap.Strings("reset", mended.Rewound), zap.Strings("started again", mended.Restarted),
		zap.Strings("ended on record and terminated in Temporal", mended.Ended), zap.Strings("forgotten runs removed from Temporal", mended.Removed))
	return nil
}

// polledWithin is how long ago a process that works has asked Temporal for workflow tasks at most:
// it waits a minute for an answer, then asks again. Temporal does not notice that a process ends.
const polledWithin = 70 * time.Second

// idle returns an error if a process of the fleet works, as far as leases and Temporal tell: a
// gateway, a sampler, or a process that runs workflows.
func idle(ctx context.Context, records fleet.Records, temporal client.Client) error {
	for _, role := range []record.Role{record.Gateway, record.Sampler} {
		leases, err := records.Store.Leases(ctx, role)
		if err != nil {
			return err
		}
		if len(leases) > 0 {
			return fmt.Errorf("%s %s works: stop all processes of the fleet first", role, leases[0].Name)
		}
	}
	d, err := temporal.DescribeTaskQueue(ctx, workflows.QueueTraining, enums.TASK_QUEUE_TYPE_WORKFLOW)
	if err != nil {
		return fmt.Errorf("ask who polls queue %s: %w", workflows.QueueTraining, err)
	}
	for _, poller := range d.Pollers {
		if ago := time.Since(poller.LastAccessTime.AsTime()); ago < polledWithin {
			return fmt.Errorf("%s polled queue %s %s ago: stop all processes of the fleet first; one that has ended counts for %s", poller.Identity, workflows.QueueTraining, ago.Round(time.Second), polledWithin)
		}
	}
	return nil
}
