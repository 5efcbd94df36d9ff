package workers

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/workers/fleet"
)

// gpuCommand updates policies.
type gpuCommand struct {
	common   `embed:""`
	database `embed:""`
	temporal `embed:""`
	health   `embed:""`

	Engines []string `help:"Engines to train with, of those compiled in: native, gomlx, torch." name:"engine" default:"native,gomlx,torch" env:"FULGURITE_ENGINES"`
}

// Validate is called by kong.
func (c *gpuCommand) Validate() error {
	if len(c.Engines) == 0 {
		return fmt.Errorf("--engine names no engine: there are %s", strings.Join(fleet.EngineNames(), ", "))
	}
	for _, name := range c.Engines {
		if !slices.Contains(fleet.EngineNames(), name) {
			return fmt.Errorf("engine %q is not compiled in: there are %s", name, strings.Join(fleet.EngineNames(), ", "))
		}
	}
	return nil
}

// Run polls until a signal comes.
func (c *gpuCommand) Run(ctx context.Context, stderr io.Writer) error {
	return c.serve(ctx, stderr, c.setUp)
}

func (c *gpuCommand) setUp(ctx context.Context, p *process) error {
	records, err := p.open(ctx, c.database)
	if err != nil {
		return err
	}
	temporal, _, err := p.dial(ctx, c.temporal)
	if err != nil {
		return err
	}
	trainer := records.Trainer(fleet.OnlyEngines(c.Engines))
	router := records.Route(nil) // for the servers on this GPU; nothing is sampled here
	trainer.Sleeper = router
	p.OnClose(func(context.Context) error { trainer.Close(); router.Close(); return nil })
	if err := p.poll(TrainGPU(temporal, trainer, p.tuning(1))); err != nil {
		return err
	}
	return p.serveHealth(ctx, c.health)
}
