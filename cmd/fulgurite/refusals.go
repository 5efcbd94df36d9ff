package main

import (
	"context"

	"github.com/fulgurite/fulgurite/internal/report"
)

// runRefusals is what calls of a run were refused with.
type runRefusals struct {
	Run      string           `json:"run"`
	Refusals []report.Refusal `json:"refusals"`
}

// ofRun shows the refused calls of all attempts of a run, by code.
func (c *callsCommand) ofRun(ctx context.Context, s *shared, t *terminal) error {
	db, _, err := s.openRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Run(ctx, c.Attempt); err != nil {
		return err
	}
	counts, err := db.RefusalsOfRun(ctx, c.Attempt, mainPolicy)
	if err != nil {
		return err
	}
	out := runRefusals{c.Attempt, report.Refusals(counts)}
	if c.JSON {
		return t.json(out)
	}
	if len(out.Refusals) == 0 {
		t.printf("No model call of run %s was refused.\n", c.Attempt)
	}
	for _, r := range out.Refusals {
		t.printf("%s\n", r.Text())
	}
	return nil
}
