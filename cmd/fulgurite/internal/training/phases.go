package training

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/status"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// phases starts the phases of a spec, or attaches to them, and follows them.
func (e Execution) phases(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	result, err := e.RunPhases(ctx, s, t)
	if err != nil || e.Detach {
		return err
	}
	if e.JSON {
		return t.JSON(result)
	}
	t.Printf("Phases of %s:\n", result.Name)
	return status.PrintPhases(t, result.Phases)
}

// followPhases shows the progress of each phase, until the last one ends or ctx does.
func (f Follower) followPhases(ctx context.Context, run client.WorkflowRun, s spec.Spec) (workflows.PhasesProgress, error) {
	var result workflows.PhasesProgress
	done := make(chan error, 1)
	go func() { done <- f.await(ctx, run, &result) }()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	shown := phaseView{}
	for {
		select {
		case err := <-done:
			if err == nil {
				shown.show(f, result.Phases)
			}
			if ctx.Err() != nil {
				return result, ctx.Err()
			}
			return result, err
		case <-tick.C:
		}
		var p workflows.PhasesProgress
		limited, cancel := context.WithTimeout(ctx, queryTimeout)
		err := runstate.Query(limited, f.Client, run.GetID(), &p)
		cancel()
		if err != nil {
			continue // it is asked again
		}
		if under := shown.show(f, p.Phases); under > 0 {
			f.followPhase(ctx, p.Phases[under-1].Run, s.PhaseSpec(under, spec.PhaseStart{}).WithDefaults())
		}
	}
}

// followPhase shows the progress of the run of a phase until it has ended. How it ended is said
// by the workflow of the phases.
func (f Follower) followPhase(ctx context.Context, run string, s spec.Spec) {
	for ctx.Err() == nil {
		if _, err := f.Client.DescribeWorkflowExecution(ctx, run, ""); err == nil {
			break
		}
		select { // it starts in a moment
		case <-ctx.Done():
		case <-time.After(pollEvery):
		}
	}
	_, _ = f.Follow(ctx, f.Client.GetWorkflow(ctx, run, ""), s)
}

// phaseView remembers which phases a user was told of.
type phaseView struct {
	begun, ended int
}

// show tells once of each phase that it has begun, and how it ended. It returns the number of
// the phase that is under way and was not followed yet; 0 if there is none.
func (v *phaseView) show(f Follower, phases []workflows.PhaseProgress) (under int) {
	for _, p := range phases {
		if p.Number > v.begun && p.Status != "" {
			v.begun = p.Number
			f.Display.Println(fmt.Sprintf("phase %d of %d, %s: run %s", p.Number, len(phases), p.Type, p.Run))
			if p.Status == record.Running {
				under = p.Number
			}
		}
		if p.Number > v.ended && p.Promoted != nil {
			v.ended = p.Number
			f.Display.Println(fmt.Sprintf("phase %d %s: version %d of the %s is promoted", p.Number, p.Status, *p.Promoted, p.Type))
		}
	}
	return under
}
