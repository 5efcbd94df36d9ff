// Package schedule holds the commands for Temporal Schedules, whatever they start: workflows
// that ask runs to learn from use, and workflows that remove what is no longer needed. It
// makes schedules for the commands that know what to start, and knows neither specs nor the
// store's rows.
package schedule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdk "go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/workflows"
)

// shortestEvery bounds how often a schedule fires: it is the shortest interval of Temporal.
const shortestEvery = time.Second

// prune begins the names of the schedules that prune. No run's name has a colon.
const prune = "prune:"

// OfRun returns the id of a run's schedule, and the beginning of the ids of the workflows
// that it starts.
func OfRun(run string) string { return run + "/traffic" }

// OfPruning returns the same for a schedule that prunes. The id is also the name by which
// the commands know the schedule.
func OfPruning(name string) string { return prune + name }

// idOf returns the id of the schedule with a name, which is that of a run or one of
// OfPruning.
func idOf(name string) string {
	if strings.HasPrefix(name, prune) {
		return name
	}
	return OfRun(name)
}

// CheckEvery returns an error if a schedule can't fire that often.
func CheckEvery(every time.Duration) error {
	if every < shortestEvery {
		return terminal.Usagef("--every %s: give at least %s", every, shortestEvery)
	}
	return nil
}

// checkAction returns an error if a schedule does something else than to start workflows of
// the type that its id stands for.
func checkAction(id string, action client.ScheduleAction) error {
	want := workflows.TypeTraffic
	if strings.HasPrefix(id, prune) {
		want = workflows.TypePrune
	}
	started, ok := action.(*client.ScheduleWorkflowAction)
	switch {
	case !ok:
		return fmt.Errorf("schedule %s of Temporal starts no workflow", id)
	case started.Workflow != want:
		return fmt.Errorf("schedule %s of Temporal starts workflows of type %v, not %s", id, started.Workflow, want)
	}
	return nil
}

// Put makes a schedule that starts a workflow every so often, one at a time, or changes the
// one that has the id. A paused schedule stays paused, which it reports.
func Put(ctx context.Context, c client.Client, id string, every time.Duration, action *client.ScheduleWorkflowAction) (paused bool, err error) {
	spec := client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: every}}}
	_, err = c.ScheduleClient().Create(ctx, client.ScheduleOptions{ID: id, Spec: spec, Overlap: enums.SCHEDULE_OVERLAP_POLICY_SKIP, Action: action})
	if errors.Is(err, sdk.ErrScheduleAlreadyRunning) {
		err = c.ScheduleClient().GetHandle(ctx, id).Update(ctx, client.ScheduleUpdateOptions{
			DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
				now := in.Description.Schedule
				if err := checkAction(id, now.Action); err != nil {
					return nil, terminal.Usagef("%w: delete that one there, or give --name another name", err)
				}
				now.Spec, now.Action, paused = &spec, action, now.State != nil && now.State.Paused
				return &client.ScheduleUpdate{Schedule: &now}, nil
			},
		})
	}
	return paused, err
}

// scheduled is the answer of `fulgurite schedule list --json`.
type scheduled struct {
	// Run is the run that is asked, or empty.
	Run string `json:"run,omitempty"`
	// Prune is the name of a schedule that prunes, with prune: before it, or empty; Rule
	// says what it removes.
	Prune  string     `json:"prune,omitempty"`
	Rule   string     `json:"rule,omitempty"`
	Every  string     `json:"every,omitempty"`
	Paused bool       `json:"paused"`
	Last   *time.Time `json:"last,omitempty"` // when it last fired
	Next   *time.Time `json:"next,omitempty"`
	// Result is what came of the last time.
	Result string `json:"result,omitempty"`

	action client.ScheduleAction
}

// List is `fulgurite schedule list`.
type List struct {
	JSON bool `help:"Print the schedules as JSON." name:"json"`
}

// Outputs returns what the command prints as JSON.
func (*List) Outputs() []any { return []any{[]scheduled{}} }

// Run lists the schedules.
func (c *List) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
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
		if entry.WorkflowType.Name != workflows.TypeTraffic && entry.WorkflowType.Name != workflows.TypePrune {
			continue
		}
		one, err := describe(ctx, temporal, entry.ID)
		var gone *serviceerror.NotFound
		if errors.As(err, &gone) {
			continue // somebody deleted it, and the list of Temporal is a moment behind
		}
		if err != nil {
			return err
		}
		if idOf(one.name()) != entry.ID || checkAction(entry.ID, one.action) != nil {
			continue // it is somebody else's
		}
		one.Result = s.Place().Complete(one.Result)
		all = append(all, one)
	}
	if c.JSON {
		return t.JSON(all)
	}
	if len(all) == 0 {
		t.Printf("No schedule asks a run to learn from use, and none prunes: `%s` and `%s` make one.\n",
			s.Command("schedule", "SPEC", "--every", "24h"), s.Command("prune", "--every", "24h"))
		return nil
	}
	w := tabwriter.NewWriter(t.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tEVERY\tLAST\tNEXT\tRESULT")
	for _, one := range all {
		next := timeText(one.Next)
		if one.Paused {
			next = "paused"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", terminal.Escape(one.name()), one.Every, timeText(one.Last), next, terminal.Escape(one.Result))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, one := range all {
		if one.Rule != "" {
			t.Printf("%s removes %s\n", terminal.Escape(one.Prune), terminal.Escape(one.Rule))
		}
	}
	return nil
}

// name returns the name by which the commands know the schedule.
func (s scheduled) name() string { return s.Run + s.Prune }

// timeText returns a time for people, "-" for none.
func timeText(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return readable.Time(*at)
}

// describe reads a schedule, and what came of its last workflow.
func describe(ctx context.Context, c client.Client, id string) (out scheduled, err error) {
	d, err := c.ScheduleClient().GetHandle(ctx, id).Describe(ctx)
	if err != nil {
		return out, fmt.Errorf("describe schedule %s: %w", id, err)
	}
	out = scheduled{Paused: d.Schedule.State.Paused, action: d.Schedule.Action}
	if strings.HasPrefix(id, prune) {
		out.Prune, out.Rule = id, ruleOf(d.Schedule.Action)
	} else {
		out.Run = strings.TrimSuffix(id, OfRun(""))
	}
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
		out.Result = result(ctx, c, of.WorkflowID, of.FirstExecutionRunID)
	}
	return out, nil
}

// ruleOf says what a PruneWorkflow removes, or why that is not known.
func ruleOf(action client.ScheduleAction) string {
	started, ok := action.(*client.ScheduleWorkflowAction)
	if !ok || len(started.Args) != 1 {
		return "nothing that this program knows of"
	}
	var in activities.PruneInput
	payload, ok := started.Args[0].(*common.Payload)
	if !ok {
		return "nothing that this program knows of"
	}
	if err := converter.GetDefaultDataConverter().FromPayload(payload, &in); err != nil {
		return err.Error()
	}
	return in.Rule.Text()
}

// result says what came of a workflow that a schedule started.
func result(ctx context.Context, c client.Client, id, execution string) string {
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

// ofSchedule names the schedule that a command acts on.
type ofSchedule struct {
	Name string `arg:"" help:"Name of the run that is asked, or of a schedule that prunes, such as prune:default."`
}

// text names the schedule in a sentence.
func (o ofSchedule) text() string {
	if strings.HasPrefix(o.Name, prune) {
		return "schedule " + o.Name
	}
	return "schedule of run " + o.Name
}

// act acts on the schedule of the run.
func (o ofSchedule) act(ctx context.Context, s *state.Flags, t *terminal.Terminal, done string, act func(client.ScheduleHandle) error) error {
	temporal, err := s.Dial(ctx, t)
	if errors.Is(err, state.ErrNoStack) {
		if unknown := o.find(ctx, s, t); unknown != nil {
			return fmt.Errorf("run %s: %w", o.Name, unknown) // so it is nowhere
		}
	}
	if err != nil {
		return err
	}
	defer temporal.Close()
	id := idOf(o.Name)
	schedule := temporal.ScheduleClient().GetHandle(ctx, id)
	found, err := schedule.Describe(ctx)
	if err == nil {
		if other := checkAction(id, found.Schedule.Action); other != nil {
			return terminal.Usagef("%w: that is not the %s", other, o.text())
		}
		err = act(schedule)
	}
	var unknown *serviceerror.NotFound
	if errors.As(err, &unknown) {
		if strings.HasPrefix(o.Name, prune) {
			return terminal.Usagef("there is no schedule %q; `%s` lists those that there are", o.Name, s.Command("schedule", "list"))
		}
		return terminal.Usagef("run %q has no schedule; `%s` lists those that there are", o.Name, s.Command("schedule", "list"))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.text(), err)
	}
	t.Printf("%s\n", done)
	return nil
}

// find returns an error if the directory's store has no such run.
func (o ofSchedule) find(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	if strings.HasPrefix(o.Name, prune) {
		return nil // the store knows nothing of it
	}
	records, err := s.OpenRecords(ctx, t, state.RecordFlags{})
	if err != nil {
		return err
	}
	defer records.Close()
	_, err = records.Store.Run(ctx, o.Name)
	return err
}

// Now is `fulgurite schedule now`.
type Now struct {
	Of ofSchedule `embed:""`
}

// Run starts the schedule's workflow at once.
func (c *Now) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	done := fmt.Sprintf("Run %s is asked now: %s", c.Of.Name, s.Command("schedule", "list"))
	if strings.HasPrefix(c.Of.Name, prune) {
		done = fmt.Sprintf("The %s has fired: %s", c.Of.text(), s.Command("schedule", "list"))
	}
	return c.Of.act(ctx, s, t, done, func(h client.ScheduleHandle) error {
		return h.Trigger(ctx, client.ScheduleTriggerOptions{Overlap: enums.SCHEDULE_OVERLAP_POLICY_SKIP})
	})
}

// Pause is `fulgurite schedule pause`.
type Pause struct {
	Of     ofSchedule `embed:""`
	Reason string     `help:"Why; Temporal keeps it with the schedule." placeholder:"TEXT"`
}

// Run pauses the schedule.
func (c *Pause) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Of.act(ctx, s, t, fmt.Sprintf("The %s is paused.", c.Of.text()), func(h client.ScheduleHandle) error {
		return h.Pause(ctx, client.SchedulePauseOptions{Note: noteOf("paused", c.Reason)})
	})
}

// Resume is `fulgurite schedule resume`.
type Resume struct {
	Of     ofSchedule `embed:""`
	Reason string     `help:"Why; Temporal keeps it with the schedule." placeholder:"TEXT"`
}

// Run lets the schedule go on.
func (c *Resume) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Of.act(ctx, s, t, fmt.Sprintf("The %s goes on.", c.Of.text()), func(h client.ScheduleHandle) error {
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

// Delete is `fulgurite schedule delete`.
type Delete struct {
	Of ofSchedule `embed:""`
}

// Run deletes the schedule.
func (c *Delete) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	done := fmt.Sprintf("The %s is deleted; `%s` ends the run.", c.Of.text(), s.Command("stop", c.Of.Name))
	if strings.HasPrefix(c.Of.Name, prune) {
		done = fmt.Sprintf("The %s is deleted.", c.Of.text())
	}
	return c.Of.act(ctx, s, t, done, func(h client.ScheduleHandle) error { return h.Delete(ctx) })
}
