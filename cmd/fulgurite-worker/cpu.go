package main

import (
	"context"
	"io"
	"runtime"

	"go.temporal.io/sdk/worker"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/internal/builtin"
	"github.com/fulgurite/fulgurite/internal/fleet"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/workers"
	"github.com/fulgurite/fulgurite/workflows"
)

// cpuCommand runs everything that needs neither a card nor a public address.
type cpuCommand struct {
	common   `embed:""`
	database `embed:""`
	temporal `embed:""`
	health   `embed:""`

	Queues      []string `help:"Task queues to run agents for, beside rollout-cpu." name:"queue" env:"FULGURITE_QUEUES"`
	Concurrency int      `help:"Most agents that run at once on a queue (0: 32 a core)." default:"0" env:"FULGURITE_CONCURRENCY"`
	Gateway     string   `help:"The gateway's URL (default: the one that holds the lease)." env:"FULGURITE_GATEWAY" placeholder:"URL"`
	Sampler     string   `help:"The sampler's URL (default: all that hold a lease)." env:"FULGURITE_SAMPLER" placeholder:"URL"`
}

// Run polls until a signal comes.
func (c *cpuCommand) Run(ctx context.Context, stderr io.Writer) error {
	return c.serve(ctx, stderr, c.setUp)
}

func (c *cpuCommand) setUp(ctx context.Context, p *process) error {
	records, err := p.open(ctx, c.database)
	if err != nil {
		return err
	}
	temporal, namespace, err := p.dial(ctx, c.temporal)
	if err != nil {
		return err
	}
	samplers := fleet.NewSamplers(leasesOr(records, c.Sampler), p.log.Named("samplers"))
	p.onClose(func(context.Context) error { samplers.Close(); return nil })
	gateways := fleet.NewFinder(leasesOr(records, c.Gateway), record.Gateway, p.log.Named("gateways"))
	forwarder, err := agent.NewForwarder(ctx, gateways.URL, p.log.Named("forwarder"))
	if err != nil {
		return err
	}
	p.onClose(forwarder.Close)
	coordinator, err := records.Coordinator(temporal, namespace, samplers)
	if err != nil {
		return err
	}
	if c.Concurrency == 0 {
		c.Concurrency = 32 * runtime.GOMAXPROCS(0) // agents mostly wait
	}
	tuning, runner := p.tuning(c.Concurrency), records.Runner(forwarder, builtin.Agents())
	list := []worker.Worker{workers.Training(temporal, coordinator, tuning)}
	for _, queue := range append([]string{workflows.QueueRollout}, c.Queues...) {
		list = append(list, workers.Rollout(temporal, queue, runner, tuning))
	}
	if err := p.poll(list...); err != nil {
		return err
	}
	return p.serveHealth(ctx, c.health)
}

// leasesOr are the leases of the store, unless a URL is given.
func leasesOr(r fleet.Records, url string) fleet.Lister {
	if url != "" {
		return fleet.Fixed(url)
	}
	return r.Store
}
