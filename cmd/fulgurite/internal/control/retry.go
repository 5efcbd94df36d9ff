package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/operator"
	"github.com/fulgurite/fulgurite/spec"
)

// Retry is `fulgurite retry`.
type Retry struct {
	Message message  `embed:""`
	Steps   int      `help:"Number of steps that the run has in all. With more than it has finished, a run goes on that has completed or was stopped." placeholder:"N"`
	Set     []string `help:"Another number for a key of the spec from the first step that is not finished, for example training.optimizer.learning_rate=1e-5. Repeatable." placeholder:"KEY=NUMBER" sep:"none"`
}

// retryResult is the JSON output of `fulgurite retry --json`.
type retryResult struct {
	Run string `json:"run"`
	// Execution is Temporal's run id of the workflow that goes on.
	Execution string `json:"execution"`
}

// Outputs returns what the command prints as JSON.
func (*Retry) Outputs() []any { return []any{retryResult{}} }

// Run lets the run go on.
func (c *Retry) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	values, err := numbers(c.Set)
	if err != nil {
		return err
	}
	if c.Steps < 0 {
		return terminal.Usagef("--steps %d: give the number of steps that the run has in all", c.Steps)
	}
	if c.Steps > 0 {
		if values == nil {
			values = map[string]float64{}
		}
		if _, twice := values[spec.KeySteps]; twice {
			return terminal.Usagef("%s is given twice, with --set and with --steps: leave one out", spec.KeySteps)
		}
		values[spec.KeySteps] = float64(c.Steps)
	}
	records, err := s.OpenRecords(ctx, t, c.Message.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	name := c.Message.Run_
	if _, err := records.Store.Run(ctx, name); err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	o := operator.Operator{Store: records.Store, Dial: dial(s, t)}
	a, err := o.Act(ctx, c.Message.action(record.ActionRetry, record.ActionInput{Values: values}))
	if errors.Is(err, operator.ErrRefused) {
		return c.Message.explain(err, a, s)
	}
	if err != nil {
		return err
	}
	if c.Message.JSON {
		return t.JSON(retryResult{name, a.Result.Execution})
	}
	t.Printf("Run %s goes on: %s\n", name, s.Command("status", name))
	return nil
}
