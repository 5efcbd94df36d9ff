package training

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/progress"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/status"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/memory"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/operator"
	"github.com/fulgurite/fulgurite/workflows"
)

// Execution is a run to start, or to attach to, and to follow.
type Execution struct {
	Name string
	Plan plan.Plan
	// Again are the words of the command that follows the run again.
	Again  []string
	Detach bool // return once it is started
	JSON   bool // write only JSON to standard output
}

// Started is the JSON output with --detach.
type Started struct {
	Run string `json:"run"`
}

// Run follows the run to its end and returns its result. With Detach the result is zero.
func (e Execution) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) (result workflows.TrainingResult, err error) {
	err = e.follow(ctx, s, t, func(f Follower, run client.WorkflowRun) (err error) {
		result, err = f.Follow(ctx, run, e.Plan.Spec)
		return err
	})
	return result, err
}

// RunPhases does what Run does, for the phases of a spec.
func (e Execution) RunPhases(ctx context.Context, s *state.Flags, t *terminal.Terminal) (result workflows.PhasesProgress, err error) {
	err = e.follow(ctx, s, t, func(f Follower, run client.WorkflowRun) (err error) {
		result, err = f.followPhases(ctx, run, e.Plan.Spec)
		return err
	})
	return result, err
}

// follow starts the workflow of a spec, or attaches to it, and shows what it does.
func (e Execution) follow(ctx context.Context, s *state.Flags, t *terminal.Terminal, show func(Follower, client.WorkflowRun) error) error {
	temporal, err := s.Dial(ctx, t)
	if err != nil {
		return err
	}
	defer temporal.Close()
	under, err := UnderWay(ctx, temporal, e.Name)
	if err != nil {
		return err
	}
	if free, known := s.FreeForRun(); known && !under { // a run under way has its space already
		if err := e.Plan.CheckRoom(free, memory.Limit()); err != nil {
			return err
		}
	}
	run, err := e.start(ctx, s, t, temporal)
	if err != nil {
		return err
	}
	if e.Detach {
		if e.JSON {
			return t.JSON(Started{e.Name})
		}
		t.Printf("Run %s is under way: %s\n", e.Name, s.Command("status", e.Name))
		return nil
	}
	out := t
	if e.JSON {
		out = &terminal.Terminal{Out: t.Err, Err: t.Err}
	}
	verb := "started"
	if under {
		verb = "goes on"
	}
	out.Printf("Run %s %s. Ctrl-C does not stop it; `%s` shows its progress.\n", e.Name, verb, s.Command("status", e.Name))
	display := progress.New(out.Out, out.TTY)
	err = show(Follower{
		Client: temporal, Display: display, Place: s.Place(),
		remedy: fmt.Sprintf("; `%s` starts it again", s.Command("dev")), space: s.SpaceWarning,
	}, run)
	display.Close()
	if err != nil && ctx.Err() != nil {
		out.Printf("Run %s continues without this terminal: `%s` shows its progress, and `%s` waits for its result.\n", e.Name, s.Command("status", e.Name), s.Command(e.Again...))
		return err
	}
	if err != nil {
		return e.failed(ctx, s, t, temporal, err)
	}
	return nil
}

// start puts on record who starts the run, if the store of its stack is at hand. Attaching
// to one that is under way starts nothing.
func (e Execution) start(ctx context.Context, s *state.Flags, t *terminal.Terminal, temporal client.Client) (client.WorkflowRun, error) {
	var o operator.Operator
	if s.Own() {
		if under, err := UnderWay(ctx, temporal, e.Name); err == nil && !under {
			records, err := s.OpenRecords(ctx, t, state.RecordFlags{})
			if err != nil {
				return nil, err
			}
			defer records.Close()
			o.Store = records.Store
		}
	}
	run, a, err := StartRecorded(ctx, temporal, o, record.Action{ID: operator.NewID(), Run: e.Name, By: state.Person()}, e.Plan.Spec)
	if errors.Is(err, operator.ErrRefused) {
		return nil, terminal.Usagef("%s", a.Result.Message)
	}
	return run, err
}

// failed returns an error that says how a run ended that did not complete, and what can
// be done.
func (e Execution) failed(ctx context.Context, s *state.Flags, t *terminal.Terminal, temporal client.Client, cause error) error {
	out := status.Status{Run: e.Name, Status: record.Failed, Error: workflows.Reason(cause)}
	canRetry := !workflows.Failure(cause).Final
	if ended, err := status.Unrecorded(ctx, temporal, e.Name); err == nil && ended.Status != record.Running && ended.Status != record.Completed && ended.Status != record.Stopped {
		out.Status, out.Error, canRetry = ended.Status, ended.Failure().Error, ended.CanRetry()
	}
	if e.JSON {
		if err := t.JSON(out.Placed(s.Place())); err != nil {
			return err
		}
	}
	if refused(cause) {
		return terminal.Usage(fmt.Errorf("run %s: %s", e.Name, out.Error))
	}
	if !canRetry || len(e.Plan.Spec.Phases) > 0 { // a failed phase says how it goes on
		return fmt.Errorf("run %s %s: %s", e.Name, out.Status, out.Error)
	}
	return fmt.Errorf("run %s %s: %s\nOnce the cause is fixed: %s", e.Name, out.Status, out.Error, s.Command("retry", e.Name))
}
