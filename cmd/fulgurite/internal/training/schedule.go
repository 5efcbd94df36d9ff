package training

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// Schedule is `fulgurite schedule`: Temporal Schedules that ask runs to learn from use.
type Schedule struct {
	Create ScheduleCreate `cmd:"" default:"withargs" help:"Start the run of a spec with traffic.train, and ask it on a schedule to learn from what is new."`
	List   ScheduleList   `cmd:"" help:"List the schedules."`
	Now    ScheduleNow    `cmd:"" help:"Ask a run now, besides its schedule."`
	Pause  SchedulePause  `cmd:"" help:"Hold a schedule."`
	Resume ScheduleResume `cmd:"" help:"Let a schedule go on."`
	Delete ScheduleDelete `cmd:"" help:"Delete a schedule. The run stays; fulgurite stop ends it."`
}

// shortestEvery bounds how often a schedule fires: it is the shortest interval of Temporal.
const shortestEvery = time.Second

// scheduleID returns the id of a run's schedule, and the beginning of the ids of the workflows
// that it starts.
func scheduleID(run string) string { return run + "/traffic" }

// ScheduleCreate is `fulgurite schedule SPEC --every TIME`.
type ScheduleCreate struct {
	Spec  string        `arg:"" help:"Spec file, YAML or JSON, with traffic.train." type:"path"`
	Every time.Duration `help:"How often the run is asked, such as 24h." default:"24h" placeholder:"TIME"`
	Name  string        `help:"Name of the run (default: the spec's name, or the file's)."`
}

// Run starts the run, unless it is under way, and makes or changes its schedule.
func (c *ScheduleCreate) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	if c.Every < shortestEvery {
		return terminal.Usagef("--every %s: give at least %s", c.Every, shortestEvery)
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
	every := client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: c.Every}}}
	_, err = temporal.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID: scheduleID(e.Name), Spec: every, Overlap: enums.SCHEDULE_OVERLAP_POLICY_SKIP, Action: segmentAction(e.Name),
	})
	paused := false
	if errors.Is(err, sdk.ErrScheduleAlreadyRunning) {
		err = temporal.ScheduleClient().GetHandle(ctx, scheduleID(e.Name)).Update(ctx, client.ScheduleUpdateOptions{
			DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
				now := in.Description.Schedule
				if err := checkAction(now.Action); err != nil {
					return nil, terminal.Usagef("Temporal has a schedule %s that %w: delete that one there, or give --name another name", scheduleID(e.Name), err)
				}
				now.Spec, now.Action, paused = &every, segmentAction(e.Name), now.State != nil && now.State.Paused
				return &client.ScheduleUpdate{Schedule: &now}, nil
			},
		})
	}
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

// checkAction returns an error if a schedule does something else than to ask a run.
func checkAction(action client.ScheduleAction) error {
	a, ok := action.(*client.ScheduleWorkflowAction)
	if !ok {
		return errors.New("starts no workflow")
	}
	if a.Workflow != workflows.TypeTraffic {
		return fmt.Errorf("starts workflows of type %v, not %s", a.Workflow, workflows.TypeTraffic)
	}
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
		ID: scheduleID(run), Workflow: workflows.TypeTraffic, Args: []any{workflows.TrafficInput{Run: run}}, TaskQueue: workflows.QueueTraining,
		StaticSummary: "run " + run + " learns from what is new",
	}
}

// scheduled is the answer of `fulgurite schedule list --json`.
type scheduled struct {
	Run    string     `json:"run"`
	Every  string     `json:"every,omitempty"`
	Paused bool       `json:"paused"`
	Last   *time.Time `json:"last,omitempty"` // when the run was last asked
	Next   *time.Time `json:"next,omitempty"`
	// Result is what came of the last time.
	Result string `json:"result,omitempty"`
}

// ScheduleList is `fulgurite schedule list`.
type ScheduleList struct {
	JSON bool `help:"Print the schedules as JSON." name:"json"`
}

// Outputs returns what the command prints as JSON.
func (*ScheduleList) Outputs() []any { return []any{[]scheduled{}} }

// Run lists the schedules of runs.
func (c *ScheduleList) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	temporal, err := s.Dial(ctx, t)
	if err != nil {
		return err
	}
	defer temporal.Close()
	found, err := temporal.ScheduleClient().List(ctx, client.ScheduleListOptions{})
	if err != nil {
		return fmt.Errorf("list the schedules: %w", err)
	}
	all := []scheduled{}
	for found.HasNext() {
		entry, err := found.Next()
		if err != nil {
			return fmt.Errorf("list the schedules: %w", err)
		}
		if entry.WorkflowType.Name != workflows.TypeTraffic {
			continue
		}
		one, err := describeSchedule(ctx, temporal, entry.ID)
		var gone *serviceerror.NotFound
		if errors.As(err, &gone) {
			continue // somebody deleted it, and the list of Temporal is a moment behind
		}
		if err != nil {
			return err
		}
		one.Result = s.Place().Complete(one.Result)
		all = append(all, one)
	}
	if c.JSON {
		return t.JSON(all)
	}
	if len(all) == 0 {
		t.Printf("No schedule asks a run to learn from use; `%s` makes one.\n", s.Command("schedule", "SPEC", "--every", "24h"))
		return nil
	}
	w := tabwriter.NewWriter(t.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tEVERY\tLAST\tNEXT\tRESULT")
	for _, one := range all {
		next := timeText(one.Next)
		if one.Paused {
			next = "paused"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", one.Run, one.Every, timeText(one.Last), next, terminal.Escape(one.Result))
	}
	return w.Flush()
}

// timeText returns a time for people, "-" for none.
func timeText(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return readable.Time(*at)
}

// describeSchedule reads a schedule, and what came of its last workflow.
func describeSchedule(ctx context.Context, c client.Client, id string) (out scheduled, err error) {
	d, err := c.ScheduleClient().GetHandle(ctx, id).Describe(ctx)
	if err != nil {
		return out, fmt.Errorf("describe schedule %s: %w", id, err)
	}
	out = scheduled{Run: strings.TrimSuffix(id, scheduleID("")), Paused: d.Schedule.State.Paused}
	if intervals := d.Schedule.Spec.Intervals; len(intervals) > 0 {
		out.Every = intervals[0].Every.String()
	}
	if next := d.Info.NextActionTimes; len(next) > 0 {
		out.Next = &next[0]
	}
	recent := d.Info.RecentActions
	if len(recent) == 0 {
		return out, nil
	}
	last := recent[len(recent)-1]
	out.Last = &last.ActualTime
	if of := last.StartWorkflowResult; of != nil {
		out.Result = segmentResult(ctx, c, of.WorkflowID, of.FirstExecutionRunID)
	}
	return out, nil
}

// segmentResult says what came of a TrafficWorkflow.
func segmentResult(ctx context.Context, c client.Client, id, execution string) string {
	d, err := c.DescribeWorkflowExecution(ctx, id, execution)
	var unknown *serviceerror.NotFound
	switch {
	case errors.As(err, &unknown):
		return "" // Temporal has forgotten it
	case err != nil:
		return err.Error()
	case d.WorkflowExecutionInfo.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING:
		return "under way"
	}
	var r struct {
		Message string `json:"message"`
	}
	if err := c.GetWorkflow(ctx, id, execution).Get(ctx, &r); err != nil {
		return "failed: " + workflows.Failure(err).Error
	}
	return r.Message
}

// ofSchedule names the run whose schedule a command acts on.
type ofSchedule struct {
	Run_ string `arg:"" name:"run" help:"Name of the run."`
}

// act acts on the schedule of the run.
func (o ofSchedule) act(ctx context.Context, s *state.Flags, t *terminal.Terminal, done string, act func(client.ScheduleHandle) error) error {
	temporal, err := s.Dial(ctx, t)
	if errors.Is(err, state.ErrNoStack) {
		if unknown := o.find(ctx, s, t); unknown != nil {
			return fmt.Errorf("run %s: %w", o.Run_, unknown) // so it is nowhere
		}
	}
	if err != nil {
		return err
	}
	defer temporal.Close()
	schedule := temporal.ScheduleClient().GetHandle(ctx, scheduleID(o.Run_))
	found, err := schedule.Describe(ctx)
	if err == nil {
		if other := checkAction(found.Schedule.Action); other != nil {
			return terminal.Usagef("Temporal has a schedule %s that %w: run %q has none", scheduleID(o.Run_), other, o.Run_)
		}
		err = act(schedule)
	}
	var unknown *serviceerror.NotFound
	if errors.As(err, &unknown) {
		return terminal.Usagef("run %q has no schedule; `%s` lists those that there are", o.Run_, s.Command("schedule", "list"))
	}
	if err != nil {
		return fmt.Errorf("schedule of run %s: %w", o.Run_, err)
	}
	t.Printf("%s\n", done)
	return nil
}

// find returns an error if the directory's store has no such run.
func (o ofSchedule) find(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	records, err := s.OpenRecords(ctx, t, state.RecordFlags{})
	if err != nil {
		return err
	}
	defer records.Close()
	_, err = records.Store.Run(ctx, o.Run_)
	return err
}

// ScheduleNow is `fulgurite schedule now`.
type ScheduleNow struct {
	Of ofSchedule `embed:""`
}

// Run starts the schedule's workflow at once.
func (c *ScheduleNow) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Of.act(ctx, s, t, fmt.Sprintf("Run %s is asked now: %s", c.Of.Run_, s.Command("schedule", "list")), func(h client.ScheduleHandle) error {
		return h.Trigger(ctx, client.ScheduleTriggerOptions{Overlap: enums.SCHEDULE_OVERLAP_POLICY_SKIP})
	})
}

// SchedulePause is `fulgurite schedule pause`.
type SchedulePause struct {
	Of     ofSchedule `embed:""`
	Reason string     `help:"Why; Temporal keeps it with the schedule." placeholder:"TEXT"`
}

// Run pauses the schedule.
func (c *SchedulePause) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Of.act(ctx, s, t, fmt.Sprintf("The schedule of run %s is paused.", c.Of.Run_), func(h client.ScheduleHandle) error {
		return h.Pause(ctx, client.SchedulePauseOptions{Note: noteOf("paused", c.Reason)})
	})
}

// ScheduleResume is `fulgurite schedule resume`.
type ScheduleResume struct {
	Of     ofSchedule `embed:""`
	Reason string     `help:"Why; Temporal keeps it with the schedule." placeholder:"TEXT"`
}

// Run lets the schedule go on.
func (c *ScheduleResume) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Of.act(ctx, s, t, fmt.Sprintf("The schedule of run %s goes on.", c.Of.Run_), func(h client.ScheduleHandle) error {
		return h.Unpause(ctx, client.ScheduleUnpauseOptions{Note: noteOf("resumed", c.Reason)})
	})
}

// noteOf says who did what to a schedule, and why.
func noteOf(what, reason string) string {
	note := what + " by " + state.Person()
	if reason != "" {
		note += ": " + reason
	}
	return note
}

// ScheduleDelete is `fulgurite schedule delete`.
type ScheduleDelete struct {
	Of ofSchedule `embed:""`
}

// Run deletes the schedule.
func (c *ScheduleDelete) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	done := fmt.Sprintf("The schedule of run %s is deleted; `%s` ends the run.", c.Of.Run_, s.Command("stop", c.Of.Run_))
	return c.Of.act(ctx, s, t, done, func(h client.ScheduleHandle) error { return h.Delete(ctx) })
}
