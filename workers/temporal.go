package workers

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"

	"github.com/fulgurite/fulgurite/workers/fleet"
)

// temporal has the flags for the connection to Temporal. Other settings, such as TLS and
// keys, come from Temporal's own variables (TEMPORAL_TLS, TEMPORAL_API_KEY,
// TEMPORAL_PROFILE, …), as for the temporal CLI.
type temporal struct {
	TemporalAddress string `help:"Temporal's frontend, host:port (default: localhost:7233)." env:"TEMPORAL_ADDRESS" placeholder:"ADDRESS"`
	Namespace       string `help:"Temporal's namespace (default: default)." env:"TEMPORAL_NAMESPACE" placeholder:"NAME"`
}

// dial connects to Temporal and waits until the namespace exists. It also returns the
// namespace's name.
func (p *process) dial(ctx context.Context, t temporal) (client.Client, string, error) {
	o, err := fleet.TemporalOptions()
	if err != nil {
		return nil, "", err
	}
	if t.TemporalAddress != "" {
		o.HostPort = t.TemporalAddress
	}
	if t.Namespace != "" {
		o.Namespace = t.Namespace
	}
	if o.Namespace == "" {
		o.Namespace = client.DefaultNamespace
	}
	o.Identity = p.Name
	o.Logger = sdklog.NewStructuredLogger(slog.New(zapslog.NewHandler(p.log.Named("temporal").Core())))
	p.log.Info("connecting", zap.String("temporal", o.HostPort), zap.String("namespace", o.Namespace))
	var c client.Client
	err = p.await(ctx, "Temporal server", func(ctx context.Context) (err error) {
		c, err = client.DialContext(ctx, o)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	p.OnClose(func(context.Context) error { c.Close(); return nil })
	return c, o.Namespace, p.await(ctx, "Temporal namespace", func(ctx context.Context) error {
		_, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: o.Namespace})
		return err
	})
}

// tuning returns the tuning of this process's workers.
func (p *process) tuning(concurrent int) Tuning {
	return Tuning{Concurrent: concurrent, Drain: p.Drain, Fatal: p.fail}
}

// poll starts workers, which stop together.
func (p *process) poll(list ...worker.Worker) error {
	var started []worker.Worker
	p.OnClose(func(context.Context) error {
		var all sync.WaitGroup
		for _, w := range started {
			all.Go(w.Stop)
		}
		all.Wait()
		return nil
	})
	for _, w := range list {
		if err := w.Start(); err != nil {
			return fmt.Errorf("start a worker: %w", err)
		}
		started = append(started, w)
	}
	return nil
}
