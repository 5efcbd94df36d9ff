package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/runstate"
)

// Retry is `fulgurite retry`.
type Retry struct {
	Message message           `embed:""`
	Records state.RecordFlags `embed:""`
}

// retryResult is what `fulgurite retry --json` prints.
type retryResult struct {
	Run string `json:"run"`
	// Execution is Temporal's run id of the workflow that goes on.
	Execution string `json:"execution"`
}

// Run lets the run go on.
func (c *Retry) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	name := c.Message.Run_
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	run, err := records.Store.Run(ctx, name)
	if err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	temporal, namespace, err := s.DialNamespace(ctx, t)
	if err != nil {
		return err
	}
	defer temporal.Close()
	reason := "retried by " + cmp.Or(c.Message.By, person())
	if c.Message.Reason != "" {
		reason += ": " + c.Message.Reason
	}
	r := runstate.Retrier{Client: temporal, Namespace: namespace, Store: records.Store}
	execution, err := r.Retry(ctx, run, reason)
	if errors.Is(err, runstate.ErrNotRetried) {
		return terminal.Usagef("run %s: %w", name, err)
	}
	if err != nil {
		return err
	}
	if c.Message.JSON {
		return t.JSON(retryResult{name, execution})
	}
	t.Printf("Run %s goes on: fulgurite status%s %s\n", name, s.DirFlag(), name)
	return nil
}
