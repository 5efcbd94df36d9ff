package calls

import (
	"context"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/report"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/store"
)

// printRefusals prints the refused calls of all attempts of a run, by code.
func printRefusals(ctx context.Context, t *terminal.Terminal, db *store.Store, run string) error {
	counts, err := db.RefusalsOfRun(ctx, run, model.DefaultPolicy)
	if err != nil {
		return err
	}
	for _, r := range report.Refusals(counts) {
		t.Printf("refused: %s\n", r.Text())
	}
	return nil
}
