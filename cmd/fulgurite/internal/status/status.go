// Package status says how runs are doing: what the store has on record, what
// Temporal says of it, and what keeps a run from going on.
package status

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/workers/fleet"
	"github.com/fulgurite/fulgurite/workflows"
)

// Command is `fulgurite status`.
type Command struct {
	Run_    string            `arg:"" name:"run" help:"Name of the run."`
	JSON    bool              `help:"Print JSON." name:"json"`
	Records state.RecordFlags `embed:""`
}

// Status is the output of `fulgurite status`.
type Status struct {
	Run    string        `json:"run"`
	Status record.Status `json:"status"`
	// Error says why a run that ended did not complete.
	Error string `json:"error,omitempty"`
	// Stop is the request to end the run early. While the run is under way, it says that
	// the run is stopping.
	Stop *record.Stop `json:"stop,omitempty"`
	// Progress is that of the run's workflow. When the run has ended, or the workflow
	// can't be asked, it is what the store has. It is absent for a run that was refused,
	// that is not on record yet, or that does not answer.
	Progress *workflows.Progress `json:"progress,omitempty"`
	// Only is the split of a run that trains nothing. Evaluated counts what its
	// evaluation has done, while the run is under way.
	Only      string           `json:"evaluation_only,omitempty"`
	Evaluated *workflows.Count `json:"evaluated,omitempty"`
	// Usage counts the model calls of all attempts so far, those of evaluations too.
	Usage *record.Usage `json:"usage,omitempty"`
	// Collected are the versions that gave up their files.
	Collected []int `json:"collected,omitempty"`
	// Evaluations are those on record, with pass@k where they have several samples.
	Evaluations []report.Evaluation `json:"evaluations,omitempty"`
	// Idle lists the queues that no worker polls.
	Idle []string `json:"idle_queues,omitempty"`
	// Blocked has the activities that are tried again and again, with the reasons.
	Blocked []runstate.Blockage `json:"blocked,omitempty"`
	// Absent lists the services that are not up and without which agents wait.
	Absent  []record.Role `json:"absent_services,omitempty"`
	Warning string        `json:"warning,omitempty"`
	// Warnings say what is wrong with how the run learns, or learned.
	Warnings []string `json:"warnings,omitempty"`

	// canRetry is true if the run can go on once the cause of its end is fixed. lost is
	// true if it could, but Temporal does not have its workflow.
	canRetry, lost bool
}

// Outputs returns what the command prints as JSON.
func (*Command) Outputs() []any { return []any{Status{}} }

// Run prints the status of a run.
func (c *Command) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	out, err := read(ctx, s, t, c.Run_, c.Records)
	if err != nil {
		return err
	}
	out = out.Placed(s.Place())
	if c.JSON {
		return t.JSON(out)
	}
	return out.print(t, s.Place())
}

// Placed returns the status with the place in the commands that its texts show: those of
// workflows and of the record have none.
func (s Status) Placed(place shell.Place) Status {
	s.Error, s.Warning, s.Warnings = place.Complete(s.Error), place.Complete(s.Warning), place.CompleteAll(s.Warnings)
	s.Blocked = slices.Clone(s.Blocked)
	for i, b := range s.Blocked {
		s.Blocked[i].Failure = place.Complete(b.Failure)
	}
	if s.Progress != nil {
		p := *s.Progress
		p.Subject, p.Warnings = place.Complete(p.Subject), place.CompleteAll(p.Warnings)
		s.Progress = &p
	}
	return s
}

// read asks the store first, which answers always, and then Temporal.
func read(ctx context.Context, s *state.Flags, t *terminal.Terminal, name string, r state.RecordFlags) (Status, error) {
	records, err := s.OpenRecords(ctx, t, r)
	if err != nil {
		return Status{}, err
	}
	defer records.Close()
	run, err := records.Store.Run(ctx, name)
	if errors.Is(err, trace.ErrNotFound) {
		if out, ok := unrecorded(ctx, s, t, name); ok {
			return out, nil
		}
	}
	if err != nil {
		return Status{}, fmt.Errorf("run %s: %w", name, err)
	}
	scarce, full := s.SpaceWarning()
	if run.Status == record.Running && full {
		return Status{Run: name, Status: run.Status, Warning: scarce}, nil // Temporal can't write either, and does not answer
	}
	run, temporal, doubt := live(ctx, s, t, run)
	if temporal != nil {
		defer temporal.Close()
	}
	out := Status{Run: name, Status: run.Status, Error: run.Failure().Error, Warning: doubt, canRetry: run.CanRetry()}
	out.lost = out.canRetry && temporal != nil && isLost(ctx, temporal, run)
	if out.Collected, err = records.Store.CollectedVersions(ctx, name, model.DefaultPolicy); err != nil {
		return out, err
	}
	if err := out.readEvaluations(ctx, records, run); err != nil {
		return out, err
	}
	usage, err := records.Store.Usage(ctx, name, model.DefaultPolicy)
	if err != nil {
		return out, err
	}
	out.Usage = &usage
	if run.Status != record.Running || doubt != "" {
		return out, out.readRecords(ctx, records, run)
	}
	out.Warning = scarce
	sp, err := records.Catalog.Spec(ctx, name)
	if err != nil {
		return out, err
	}
	var services runstate.Leases // the services of a stack are in one process and hold none
	if r.Store != "" {
		services = records.Store
	}
	progress, found, failed, err := runstate.Ask(ctx, temporal, name, sp.Agent.Queue, services)
	if err != nil {
		return out, err
	}
	out.Progress, out.Idle, out.Blocked, out.Absent = progress, found.Idle, found.Blocked, found.Absent
	if failed != nil {
		out.Warning = fmt.Sprintf("the run does not answer: %v", failed)
		return out, nil
	}
	out.Warnings, out.Stop = out.Progress.Warnings, out.Progress.Stop
	if out.Only != "" {
		out.Evaluated = &out.Progress.Rollouts
	}
	return out, nil
}

// readRecords adds what the records say of a run whose workflow is not asked.
func (s *Status) readRecords(ctx context.Context, records fleet.Records, run record.Run) error {
	if run.Status == record.Refused {
		return nil // it never began, and its spec may be anything
	}
	steps, err := records.Store.Steps(ctx, run.Name, model.DefaultPolicy)
	if err != nil {
		return err
	}
	if text := record.UntaughtBy(steps).Text(); text != "" {
		s.Warnings = []string{text}
	}
	sp, err := records.Catalog.Spec(ctx, run.Name)
	if err != nil {
		return err
	}
	s.Progress, err = ended(ctx, records.Store, run, sp, steps)
	if err == nil {
		s.Stop = s.Progress.Stop
	}
	return err
}

// isLost reports whether Temporal does not know the workflow of a run.
func isLost(ctx context.Context, c client.Client, run record.Run) bool {
	_, err := c.DescribeWorkflowExecution(ctx, run.WorkflowID, "")
	var unknown *serviceerror.NotFound
	return errors.As(err, &unknown)
}

// readEvaluations adds the recorded evaluations.
func (s *Status) readEvaluations(ctx context.Context, records fleet.Records, run record.Run) error {
	if run.Status == record.Refused {
		return nil // its spec may be anything
	}
	sp, err := records.Catalog.Spec(ctx, run.Name)
	if err != nil {
		return err
	}
	s.Only = sp.Evaluation.Only
	all, err := records.Store.Evaluations(ctx, run.Name)
	if err != nil {
		return err
	}
	s.Evaluations, err = report.Evaluations(ctx, records.Store, all, sp)
	return err
}

// unrecorded returns the status of a run that Temporal knows and the store does not: a
// run that has just started, that no worker has prepared yet, or that was refused before
// it was recorded.
func unrecorded(ctx context.Context, s *state.Flags, t *terminal.Terminal, name string) (Status, bool) {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	c, err := s.Dial(ctx, t)
	if err != nil {
		return Status{}, false
	}
	defer c.Close()
	run, err := Unrecorded(ctx, c, name)
	if err != nil {
		return Status{}, false
	}
	out := Status{Run: name, Status: run.Status, Error: run.Failure().Error, canRetry: run.CanRetry()}
	if run.Status == record.Running {
		out.Warning = "it has started, but the store has no record of it yet"
		out.Idle, _ = runstate.IdleQueues(ctx, c, workflows.QueueRollout) // unknown is as good as none here
	}
	return out, true
}

// Unrecorded returns a run with what its workflow tells about it.
func Unrecorded(ctx context.Context, c client.Client, name string) (record.Run, error) {
	d, err := c.DescribeWorkflowExecution(ctx, name, "")
	if err != nil {
		return record.Run{}, fmt.Errorf("find run %s: %w", name, err)
	}
	if kind := d.WorkflowExecutionInfo.GetType().GetName(); kind != "TrainingWorkflow" {
		return record.Run{}, fmt.Errorf("%s is a %s, not a run", name, kind)
	}
	return runstate.Of(ctx, c, record.Run{Name: name, WorkflowID: name, ExecutionID: d.WorkflowExecutionInfo.FirstRunId, Status: record.Running})
}
