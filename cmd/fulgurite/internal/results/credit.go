package results

import (
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/credit/compare"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/trace"
)

// Credit is `fulgurite credit`.
type Credit struct {
	Run_  string   `arg:"" name:"run" help:"Name of the run."`
	Step  int      `help:"The step to look at (default: the last one with a batch)." placeholder:"N"`
	With  []string `help:"Assignments or algorithms to compare with the run's own credit." placeholder:"NAME,…"`
	Calls string   `help:"Also list the calls of this attempt: signals, states and advantages." placeholder:"ATTEMPT"`
	JSON  bool     `help:"Print JSON." name:"json"`
	SVG   string   `help:"Also draw which calls get credit." name:"svg" placeholder:"FILE" type:"path"`

	Records state.RecordFlags `embed:""`
}

// creditReport is the JSON output of the command.
type creditReport struct {
	compare.Report
	Attempt *compare.Calls `json:"attempt,omitempty"`
}

// Outputs returns what the command prints as JSON.
func (*Credit) Outputs() []any { return []any{creditReport{}} }

// Run computes the credit of a step again, under the run's own spec and under others.
func (c *Credit) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	var address trace.Address
	if c.Step < 0 {
		return terminal.Usagef("--step %d: want at least 1", c.Step)
	}
	if c.Calls != "" {
		var err error
		if address, err = trace.ParseAddress(c.Calls); err != nil {
			return terminal.Usage(fmt.Errorf("--calls: %w", err))
		}
	}
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	step, err := compare.Open(ctx, records.Store, records.Blobs, c.Run_, model.DefaultPolicy, c.Step)
	if errors.Is(err, compare.ErrNoBatch) {
		return terminal.Usage(err)
	}
	if err != nil {
		return err
	}
	settings, err := compare.Settings(step.Spec, c.With)
	if err != nil {
		return terminal.Usage(fmt.Errorf("--with: %w", err))
	}
	var out creditReport
	if out.Report, err = step.Compare(settings); err != nil {
		return fmt.Errorf("credit of step %d of run %s: %w", step.Number, c.Run_, err)
	}
	if c.Calls != "" {
		calls, err := step.Calls(address, settings)
		if errors.Is(err, compare.ErrNotTrained) {
			return terminal.Usage(fmt.Errorf("--calls: %w", err))
		}
		if err != nil {
			return fmt.Errorf("credit of step %d of run %s: %w", step.Number, c.Run_, err)
		}
		out.Attempt = &calls
	}
	if c.SVG != "" {
		if err := state.ReplaceFile(c.SVG, out.Plot().SVG()); err != nil {
			return err
		}
	}
	out.Remarks = s.Place().CompleteAll(out.Remarks)
	return c.print(t, out)
}

func (c *Credit) print(t *terminal.Terminal, out creditReport) error {
	if c.JSON {
		return t.JSON(out)
	}
	if err := out.WriteText(t.Out); err != nil {
		return err
	}
	if out.Attempt == nil {
		return nil
	}
	return out.Attempt.WriteText(t.Out)
}
