package training

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/schedule"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// Schedule is `fulgurite schedule`: Temporal Schedules that ask runs to learn from use.
type Schedule struct {
	Create ScheduleCreate  `cmd:"" default:"withargs" help:"Start the run of a spec with traffic.train, and ask it on a schedule to learn from what is new."`
	List   schedule.List   `cmd:"" help:"List the schedules."`
	Now    schedule.Now    `cmd:"" help:"Ask a run now, besides its schedule."`
	Pause  schedule.Pause  `cmd:"" help:"Hold a schedule."`
	Resume schedule.Resume `cmd:"" help:"Let a schedule go on."`
	Delete schedule.Delete `cmd:"" help:"Delete a schedule. The run stays; fulgurite stop ends it."`
}

// ScheduleCreate is `fulgurite schedule SPEC --every TIME`.
type ScheduleCreate struct {
	Spec  string        `arg:"" help:"Spec file, YAML or JSON, with traffic.train." type:"path"`
	Every time.Duration `help:"How often the run is asked, such as 24h." default:"24h" placeholder:"TIME"`
	Name  string        `help:"Name of the run (default: the spec's name, or the file's)."`
}

// Run starts the run, unless it is under way, and makes or changes its schedule.
func (c *ScheduleCreate) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	if err := schedule.CheckEvery(c.Every); err != nil {
		return err
	}
	e, err := request{Spec: c.Spec, Name: c.Name, Detach: true}.execution(ctx, t, "schedule", checkTraffic)
	if err != nil {
		return err
	}
	if _, err := e.Run(ctx, s, t); err != nil {
		return err
	}
	temporal, err := s.Dial(ctx, t)
	if err != nil {
		return err
	}
	defer temporal.Close()
	paused, err := schedule.Put(ctx, temporal, schedule.OfRun(e.Name), c.Every, segmentAction(e.Name))
	if err != nil {
		return fmt.Errorf("make the schedule of run %s: %w", e.Name, err)
	}
	if paused {
		t.Printf("The schedule of run %s is paused: from `%s` on, the run is asked every %s.\n", e.Name, s.Command("schedule", "resume", e.Name), c.Every)
		return nil
	}
	t.Printf("Run %s is asked every %s to learn from what is new: %s\n", e.Name, c.Every, s.Command("schedule", "list"))
	return nil
}

// checkTraffic refuses the specs of runs that learn from tasks.
func checkTraffic(s spec.Spec) error {
	if !s.FromTraffic() {
		return terminal.Usagef("traffic.train: missing: a schedule asks runs to learn from conversations; give traffic.train, or start the run with `fulgurite train`")
	}
	return s.Trainable()
}

// segmentAction starts the workflow that asks a run for a segment.
func segmentAction(run string) *client.ScheduleWorkflowAction {
	return &client.ScheduleWorkflowAction{
		ID: schedule.OfRun(run), Workflow: workflows.TypeTraffic, Args: []any{workflows.TrafficInput{Run: run}}, TaskQueue: workflows.QueueTraining,
		StaticSummary: "run " + run + " learns from what is new",
	}
}
