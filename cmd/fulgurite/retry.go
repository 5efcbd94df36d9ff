package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/internal/runstate"
)

type retryCommand struct {
	Message message     `embed:""`
	Records recordFlags `embed:""`
}

// retryResult is what `fulgurite retry --json` prints.
type retryResult struct {
	Run string `json:"run"`
	// Execution is Temporal's run id of the workflow that goes on.
	Execution string `json:"execution"`
}

func (c *retryCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	name := c.Message.Run_
	db, _, err := s.openRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer db.Close()
	run, err := db.Run(ctx, name)
	if err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	temporal, namespace, err := s.dialNamespace(ctx, t)
	if err != nil {
		return err
	}
	defer temporal.Close()
	reason := "retried by " + cmp.Or(c.Message.By, person())
	if c.Message.Reason != "" {
		reason += ": " + c.Message.Reason
	}
	r := runstate.Retrier{Client: temporal, Namespace: namespace, Store: db}
	execution, err := r.Retry(ctx, run, reason)
	if errors.Is(err, runstate.ErrNotRetried) {
		return usagef("run %s: %w", name, err)
	}
	if err != nil {
		return err
	}
	if c.Message.JSON {
		return t.json(retryResult{name, execution})
	}
	t.printf("Run %s goes on: fulgurite status%s %s\n", name, s.flag(), name)
	return nil
}
