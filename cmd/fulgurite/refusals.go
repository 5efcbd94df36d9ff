package main

import (
	"context"

	"github.com/fulgurite/fulgurite/internal/report"
	"github.com/fulgurite/fulgurite/store"
)

// printRefusals prints the refused calls of all attempts of a run, by code.
func printRefusals(ctx context.Context, t *terminal, db *store.Store, run string) error {
	counts, err := db.RefusalsOfRun(ctx, run, mainPolicy)
	if err != nil {
		return err
	}
	for _, r := range report.Refusals(counts) {
		t.printf("refused: %s\n", r.Text())
	}
	return nil
}
