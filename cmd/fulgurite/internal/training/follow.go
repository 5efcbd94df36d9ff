package training

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/progress"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// pollEvery is how often a followed run is asked for its progress.
const pollEvery = 200 * time.Millisecond

// Follower shows what a run does.
type Follower struct {
	Client  client.Client
	Display *progress.Display
	// Place is where the commands that are shown find the run.
	Place shell.Place
	// remedy says what brings a Temporal back that is away, and space whether there is
	// space for the state.
	remedy string
	space  func() (string, bool)
}

// Follow shows a run's progress until it ends or ctx does. It also says what keeps the run
// from going on, and when Temporal is away and when it is back.
func (f Follower) Follow(ctx context.Context, run client.WorkflowRun, s spec.Spec) (workflows.TrainingResult, error) {
	watched, end := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { watch(watched, f.Client, run.GetID(), s.Agent.Queue, f.Place, f.Display) })
	defer watching.Wait()
	defer end()
	type ended struct {
		result workflows.TrainingResult
		err    error
	}
	done := make(chan ended, 1)
	go func() {
		var e ended
		e.result, e.err = f.await(ctx, run)
		done <- e
	}()
	v := viewer{client: f.Client, run: run.GetID(), place: f.Place, spec: s, display: f.Display, outage: outage{remedy: f.remedy, space: f.space}}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case e := <-done:
			if ctx.Err() != nil {
				return e.result, ctx.Err()
			}
			v.show(ctx)
			return e.result, e.err
		case <-tick.C:
			v.show(ctx)
		}
	}
}

// await waits for the end of a run. A reset, or a retry, ends one execution of the run's
// workflow and begins another, which the run goes on in.
func (f Follower) await(ctx context.Context, run client.WorkflowRun) (result workflows.TrainingResult, err error) {
	for last := ""; ; {
		err = retryUnavailable(ctx, func() error { return run.Get(ctx, &result) })
		if err == nil || ctx.Err() != nil {
			return result, err
		}
		var d *workflowservice.DescribeWorkflowExecutionResponse
		asked := retryUnavailable(ctx, func() (fault error) {
			d, fault = f.Client.DescribeWorkflowExecution(ctx, run.GetID(), "")
			return fault
		})
		if asked != nil {
			return result, err // Temporal does not have the workflow any more
		}
		now := d.WorkflowExecutionInfo.Execution.RunId
		if now == last {
			return result, err
		}
		if d.WorkflowExecutionInfo.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
			f.Display.Println("the run was reset, and goes on")
		}
		last, run = now, f.Client.GetWorkflow(ctx, run.GetID(), now)
	}
}

// viewer turns a run's progress into what the display shows.
type viewer struct {
	client   client.Client
	run      string
	place    shell.Place
	spec     spec.Spec
	display  *progress.Display
	step     int  // under way; 0 before the first
	stopping bool // it was said that the run ends early
	rewards  int  // the last step whose reward was shown
	promoted int
	pending  int      // the last candidate that was said to wait
	warned   []string // warnings shown last
	poisoned int      // number of quarantined tasks reported so far
	outage   outage
}

// show asks once. A run that can't answer at the moment is asked again soon.
func (v *viewer) show(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	p, err := runstate.Progress(limited, v.client, v.run)
	v.outage.note(ctx, v.client, err, v.display)
	if err != nil {
		return
	}
	v.showCurve(p)
	// Version 0 is made and evaluated before the first step.
	last := p.Steps
	if p.Stop != nil {
		last = p.Stop.After
		v.showStop(*p.Stop)
	}
	if p.Step > 0 || v.step > 0 || p.Phase == workflows.PhaseRollouts || p.Phase == workflows.PhaseUpdate {
		v.step = min(p.Step+1, last)
	}
	v.display.Step(v.step, p.Steps)
	switch p.Phase {
	case workflows.PhaseRollouts:
		v.display.Rollouts(p.Rollouts.Done, p.Rollouts.Total)
		v.display.Pace(p.PaceText(time.Now()))
	case workflows.PhaseEvaluation:
		if p.Rollouts.Total > 0 {
			v.display.Evaluation(p.Rollouts.Done, p.Rollouts.Total)
			v.display.Pace(p.PaceText(time.Now()))
		}
	case workflows.PhaseWarmStart:
		v.showWarmStart(ctx)
	default:
		v.display.Phase(string(p.Phase))
		v.display.Pace(p.PaceText(time.Now()))
	}
}

// showStop says once that the run ends early.
func (v *viewer) showStop(stop record.Stop) {
	if !v.stopping {
		v.stopping = true
		v.display.Println(fmt.Sprintf("stopping, %s; it ends after step %d of %d", terminal.Escape(stop.Text()), stop.After, stop.Of))
	}
}

// showCurve shows the rewards and the promotion that are new.
func (v *viewer) showCurve(p workflows.Progress) {
	for _, point := range p.Curve {
		if point.Step > v.rewards {
			v.display.Reward(point.Step, point.Reward)
			v.rewards = point.Step
		}
		if point.Gate != nil && point.Step == p.Promoted && point.Step > v.promoted {
			v.display.Println(fmt.Sprintf("version %d is promoted: reward %.3f on the gate split", point.Step, *point.Gate))
			v.promoted = point.Step
		}
	}
	if p.Pending != nil && p.Pending.Decision.Candidate > v.pending {
		v.pending = p.Pending.Decision.Candidate
		d := p.Pending.Decision
		v.display.Println(fmt.Sprintf("version %d earns %.3f on the gate split against %.3f of version %d, and waits for `%s` or `%s` until %s",
			v.pending, d.Reward, d.Baseline, d.Promoted, v.place.Command("approve", v.run), v.place.Command("reject", v.run), readable.Time(p.Pending.Deadline)))
	}
	for _, text := range p.Warnings {
		if !slices.Contains(v.warned, text) {
			v.display.Println("warning: " + terminal.Escape(v.place.Complete(text)))
		}
	}
	v.warned = p.Warnings
	if p.Quarantined > v.poisoned {
		v.poisoned = p.Quarantined
		v.display.Println(fmt.Sprintf("%s failed for reasons of their own and %s quarantined: see `%s`", readable.Count(p.Quarantined, "task"), readable.IsOrAre(p.Quarantined), v.place.Command("report", v.run)))
	}
}

// showWarmStart shows the progress of the warm start, which it reads from the heartbeat
// of its activity.
func (v *viewer) showWarmStart(ctx context.Context) {
	if v.spec.Model.WarmStart == nil {
		v.display.Phase("loading")
		return
	}
	var beat activities.TrainerProgress
	d, err := v.client.DescribeWorkflowExecution(ctx, v.run, "")
	if err != nil {
		return
	}
	for _, a := range d.PendingActivities {
		if a.HeartbeatDetails != nil {
			// Details of another form are of another activity, or of an earlier release.
			_ = converter.GetDefaultDataConverter().FromPayloads(a.HeartbeatDetails, &beat)
		}
	}
	v.display.WarmStart(beat.Updates, v.spec.Model.WarmStart.Updates)
}
