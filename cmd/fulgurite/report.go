package main

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/internal/report"
)

type reportCommand struct {
	Run_    string      `arg:"" name:"run" help:"Name of the run."`
	JSON    bool        `help:"Print JSON." name:"json"`
	Records recordFlags `embed:""`
}

// Run fails where the report finds fault with the run, so that scripts can ask.
func (c *reportCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	db, blobs, err := s.openRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer db.Close()
	r, err := report.Of(ctx, asItStands{db, s, t}, blobs, c.Run_, mainPolicy)
	if err != nil {
		return err
	}
	if c.JSON {
		err = t.json(r)
	} else {
		err = r.WriteText(t.out)
	}
	if err == nil && !r.OK() {
		err = fmt.Errorf("run %s: %d faults, %d prompts skipped, %d duplicated", c.Run_, len(r.Faults), r.Prompts.Skipped, r.Prompts.Duplicated)
	}
	return err
}
