package workers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.temporal.io/sdk/worker"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/forwarder"
	"github.com/fulgurite/fulgurite/internal/capacity"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/archive"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/fleet"
	"github.com/fulgurite/fulgurite/workflows"
)

// cpuCommand runs everything that needs neither a card nor a public address.
type cpuCommand struct {
	common   `embed:""`
	database `embed:""`
	temporal `embed:""`
	health   `embed:""`

	Queues      []string `help:"Task queues to run agents for, beside rollout-cpu." name:"queue" env:"FULGURITE_QUEUES"`
	Concurrency int      `help:"Most agents that run at once on a queue (0: 32 a core, fewer if the system limits files, processes or memory)." default:"0" env:"FULGURITE_CONCURRENCY"`
	Only        bool     `help:"Run only the agents of --queue: nothing of rollout-cpu, no workflows, no coordination." env:"FULGURITE_ONLY_QUEUES"`
	Agents      string   `help:"Host, or host:port, at which agents on other machines reach this process (default: only those of this machine do)." name:"agent-address" env:"FULGURITE_AGENT_ADDRESS" placeholder:"HOST"`
	Gateway     string   `help:"The gateway's URL (default: the one that holds the lease)." env:"FULGURITE_GATEWAY" placeholder:"URL"`
	Sampler     string   `help:"The sampler's URL (default: all that hold a lease)." env:"FULGURITE_SAMPLER" placeholder:"URL"`
}

// Validate is called by kong.
func (c *cpuCommand) Validate() error {
	queues, err := spec.ParseQueues(c.Queues)
	if err != nil {
		return fmt.Errorf("--queue: %w", err)
	}
	c.Queues = queues
	if c.Only && len(c.Queues) == 0 {
		return errors.New("--only runs nothing without --queue: give the queue that the spec has in agent.queue")
	}
	if strings.Contains(c.Agents, "/") {
		return fmt.Errorf("--agent-address %q: give a host, or host:port, without a scheme and a path", c.Agents)
	}
	if c.Concurrency < 0 {
		return fmt.Errorf("--concurrency %d: give 0 or more", c.Concurrency)
	}
	return errors.Join(checkURL("--gateway", c.Gateway), checkURL("--sampler", c.Sampler))
}

// Run polls until a signal comes.
func (c *cpuCommand) Run(ctx context.Context, agents agent.Registry, stderr io.Writer) error {
	return c.serve(ctx, stderr, func(ctx context.Context, p *process) error { return c.setUp(ctx, p, agents) })
}

func (c *cpuCommand) setUp(ctx context.Context, p *process, agents agent.Registry) error {
	records, err := p.open(ctx, c.database)
	if err != nil {
		return err
	}
	temporal, namespace, err := p.dial(ctx, c.temporal)
	if err != nil {
		return err
	}
	samplers := fleet.NewSamplers(leasesOr(records, c.Sampler), p.peers, p.log.Named("samplers"))
	p.OnClose(func(context.Context) error { samplers.Close(); return nil })
	gateways := fleet.NewFinder(leasesOr(records, c.Gateway), record.Gateway, p.log.Named("gateways"))
	forwarder, err := forwarder.New(ctx, gateways.URL, p.log.Named("forwarder"), forwarder.At(c.Agents), forwarder.Trust(p.peers.TLS), forwarder.Over(p.certificate))
	if err != nil {
		return err
	}
	p.OnClose(forwarder.Close)
	if c.Concurrency == 0 {
		most, why := capacity.Agents()
		if c.Concurrency = most; why != "" {
			p.log.Info("fewer agents than 32 a core run at once", zap.Int("agents", most), zap.String("limit", why))
		}
	}
	tuning, runner := p.tuning(c.Concurrency), records.Runner(forwarder, agents)
	runner.Workers, runner.TLS = fleet.Workers{Client: temporal}, p.peers.TLS
	launchers := records.Launchers(agents)
	launchers.TLS, launchers.Containers = p.peers.TLS, &fleet.Containers{Log: p.log.Named("containers")}
	runner.Launchers = launchers
	p.OnClose(func(context.Context) error { runner.Close(); return nil })
	var list []worker.Worker
	queues := c.Queues
	if !c.Only {
		router := records.Route(samplers)
		p.OnClose(func(context.Context) error { router.Close(); return nil })
		coordinator, err := records.Coordinator(temporal, namespace, router)
		if err != nil {
			return err
		}
		list = append(list, Training(temporal, coordinator, tuning))
		queues, err = spec.ParseQueues(append([]string{workflows.QueueRollout}, queues...))
		if err != nil {
			return err
		}
	}
	for _, queue := range queues {
		list = append(list, Rollout(temporal, queue, runner, tuning))
	}
	if err := p.poll(list...); err != nil {
		return err
	}
	if !c.Only {
		p.Background(runstate.Reconciler{Client: temporal, Namespace: namespace, Store: records.Store, Log: p.log.Named("runs")}.Run)
		archiver := archive.Archiver{Temporal: archive.Temporal{Client: temporal, Namespace: namespace}, Store: records.Store, Blobs: records.Blobs, Log: p.log.Named("archive")}
		p.Background(archiver.Run)
	}
	return p.serveHealth(ctx, c.health)
}

// leasesOr returns the leases of the store, or a fixed one if a URL is given.
func leasesOr(r fleet.Records, url string) fleet.Lister {
	if url != "" {
		return fleet.Fixed(url)
	}
	return r.Store
}
