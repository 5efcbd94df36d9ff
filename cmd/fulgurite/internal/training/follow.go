package training

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/progress"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/chart"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
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
		e.err = f.await(ctx, run, &e.result)
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

// await waits for the end of a run, or of phases, and reads the result. A reset, or a retry,
// ends one execution of the workflow and begins another, which the run goes on in.
func (f Follower) await(ctx context.Context, run client.WorkflowRun, result any) error {
	for last := ""; ; {
		err := retryUnavailable(ctx, func() error { return run.Get(ctx, result) })
		if err == nil || ctx.Err() != nil {
			return err
		}
		var d *workflowservice.DescribeWorkflowExecutionResponse
		asked := retryUnavailable(ctx, func() (fault error) {
			d, fault = f.Client.DescribeWorkflowExecution(ctx, run.GetID(), "")
			return fault
		})
		if asked != nil {
			return err // Temporal does not have the workflow any more
		}
		now := d.WorkflowExecutionInfo.Execution.RunId
		if now == last {
			return err
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
	measured int      // number of a search's candidates that were shown as measured
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
	if v.spec.Optimizer != nil {
		v.showSearch(p)
	} else {
		v.display.Step(v.step, p.Steps)
	}
	switch p.Phase {
	case workflows.PhaseSearch:
		v.display.Search(v.spending(p))
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

// showSearch says once for each candidate that was measured how far the search has come.
func (v *viewer) showSearch(p workflows.Progress) {
	if p.Search == nil || p.Search.Candidates <= v.measured {
		return
	}
	v.measured = p.Search.Candidates
	v.display.Println(searchLine(*p.Search) + "; " + promptsearch.SpentText(p.Search.Spent, v.spec.Optimizer.Budget))
}

// spending returns how many rollouts a search has spent, and how many it may spend.
func (v *viewer) spending(p workflows.Progress) (done, total int) {
	if p.Search != nil {
		done = p.Search.Spent.Minibatch + p.Search.Spent.Validation
	}
	return done, v.spec.Optimizer.Budget.Minibatch + v.spec.Optimizer.Budget.Validation
}

// searchLine says how far a search has come.
func searchLine(p activities.SearchProgress) string {
	text := fmt.Sprintf("%s, %s measured", readable.Count(p.Proposals, "proposal"), readable.Count(p.Candidates, "candidate"))
	if p.Best != nil {
		text += fmt.Sprintf(", the best %.3f on validation", *p.Best)
	}
	return text
}

// showStop says once that the run ends early.
func (v *viewer) showStop(stop record.Stop) {
	if !v.stopping {
		v.stopping = true
		if v.spec.Optimizer != nil {
			v.display.Println(fmt.Sprintf("stopping, %s; the search ends with the best candidate so far", terminal.Escape(stop.Text())))
			return
		}
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

// Curves are the records that a curve is drawn from.
type Curves interface {
	Steps(ctx context.Context, run, policy string) ([]record.Step, error)
	Evaluations(ctx context.Context, run string) ([]record.Evaluation, error)
}

// DrawCurve draws a run's reward over its steps in the terminal and as an SVG in
// dir, whose path it returns.
func DrawCurve(ctx context.Context, t *terminal.Terminal, records Curves, run, dir string) (string, error) {
	steps, err := records.Steps(ctx, run, model.DefaultPolicy)
	if err != nil {
		return "", fmt.Errorf("read the steps of run %s: %w", run, err)
	}
	evaluations, err := records.Evaluations(ctx, run)
	if err != nil {
		return "", fmt.Errorf("read the evaluations of run %s: %w", run, err)
	}
	training, gate := chart.Series{Name: "training rollouts"}, chart.Series{Name: "gate split"}
	for _, s := range steps {
		reward, _ := s.Reward()
		training.Points = append(training.Points, chart.Point{X: float64(s.Step), Y: reward})
	}
	for _, e := range evaluations {
		if e.Kind == record.Gate {
			gate.Points = append(gate.Points, chart.Point{X: float64(e.Version), Y: e.Mean})
		}
	}
	plot := chart.Plot{Title: "Reward of " + run, XLabel: "step", YLabel: "mean reward", Series: []chart.Series{training, gate}}
	t.Printf("\n%s", plot.Text(t.Style))
	path := filepath.Join(dir, "reward.svg")
	return path, state.ReplaceFile(path, plot.SVG())
}

const (
	// lookEvery is how often the obstacles of a followed run are looked for. One is told
	// when it is seen twice in a row, so it takes two looks.
	lookEvery = 4 * time.Second
	// lookTimeout bounds one look.
	lookTimeout = 3 * time.Second
	// maxAtOnce is how many new obstacles are told at once.
	maxAtOnce = 4
)

// watch tells the user who follows a run what keeps it from going on, each obstacle once,
// and when it goes on. It ends with ctx.
func watch(ctx context.Context, c client.Client, run, agents string, place shell.Place, d *progress.Display) {
	t := obstacleView{run: run, place: place, display: d}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		limited, cancel := context.WithTimeout(ctx, lookTimeout)
		found, err := runstate.Find(limited, c, run, agents, nil)
		going := err == nil && isGoing(limited, c, run)
		cancel()
		if going { // else the outage, or the run's end, is what tells
			t.show(found)
		}
	}
}

// isGoing reports whether a run's workflow has not ended.
func isGoing(ctx context.Context, c client.Client, run string) bool {
	d, err := c.DescribeWorkflowExecution(ctx, run, "")
	return err == nil && d.WorkflowExecutionInfo.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING
}

// obstacleView remembers which obstacles a user was told of.
type obstacleView struct {
	run         string
	place       shell.Place
	display     *progress.Display
	seen, shown []string // keys, of the last look and since the run last went on
}

// show takes the result of a look.
func (t *obstacleView) show(o runstate.Obstacles) {
	var keys, lines []string
	more := 0
	for _, one := range each(o) {
		line := one.Lines()[0]
		key := keyOf(one, line)
		if slices.Contains(keys, key) {
			continue // in another workflow of the run
		}
		keys = append(keys, key)
		if !slices.Contains(t.seen, key) || slices.Contains(t.shown, key) {
			continue
		}
		t.shown = append(t.shown, key)
		if len(lines) == maxAtOnce {
			more++
			continue
		}
		lines = append(lines, line)
	}
	t.seen = keys
	for _, line := range lines {
		t.display.Println("the run waits: " + terminal.Escape(t.place.Complete(line)))
	}
	if more > 0 {
		t.display.Println(fmt.Sprintf("  and %d more: `%s` lists them", more, t.place.Command("status", t.run)))
	}
	if len(lines) > 0 {
		t.display.Println(fmt.Sprintf("  once that is mended it goes on by itself; `%s` ends it", t.place.Command("stop", t.run, "--now")))
	}
	if len(keys) == 0 && len(t.shown) > 0 {
		t.shown = nil
		t.display.Println("the run goes on: nothing that was named keeps it waiting")
	}
}

// each returns obstacles one by one.
func each(o runstate.Obstacles) []runstate.Obstacles {
	var out []runstate.Obstacles
	for _, q := range o.Idle {
		out = append(out, runstate.Obstacles{Idle: []string{q}})
	}
	for _, b := range o.Blocked {
		out = append(out, runstate.Obstacles{Blocked: []runstate.Blockage{b}})
	}
	return out
}

// keyOf tells obstacles apart.
func keyOf(o runstate.Obstacles, line string) string {
	if len(o.Blocked) == 0 {
		return line
	}
	return o.Blocked[0].Key()
}

const (
	// queryTimeout bounds one question to a run.
	queryTimeout = 3 * time.Second
	// reachTimeout is how long Temporal may take to answer at all. It counts as away once it
	// has not answered twice in a row.
	reachTimeout = time.Second
)

// outage tells the user who follows a run when Temporal is away and when it is back.
type outage struct {
	remedy string
	// space reports that no disk space is left for the state. It is nil if the state is
	// on another machine.
	space    func() (text string, full bool)
	missed   int
	reported bool
	full     bool
}

// note takes the error of a query, which is nil if the query was answered.
func (o *outage) note(ctx context.Context, c client.Client, asked error, d *progress.Display) {
	if o.space != nil {
		text, full := o.space()
		if full && !o.full {
			d.Println(text)
		}
		o.full = full
	}
	if asked != nil && !o.full && !reachable(ctx, c) {
		o.missed++
		if o.missed > 1 && !o.reported && ctx.Err() == nil {
			o.reported = true
			d.Println("the stack does not answer, waiting" + o.remedy)
		}
		return
	}
	if o.reported {
		d.Println("the stack is back")
	}
	o.missed, o.reported = 0, false
}

// reachable reports whether Temporal answers, regardless of the run's state.
func reachable(ctx context.Context, c client.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	_, err := c.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	return err == nil
}

// away reports whether an error says that Temporal does not answer: it can't be reached, or
// a connection that is still open got no answer in time. ctx is the caller's.
func away(ctx context.Context, err error) bool {
	var unavailable *serviceerror.Unavailable
	var late *serviceerror.DeadlineExceeded
	return errors.As(err, &unavailable) || ctx.Err() == nil && (errors.As(err, &late) || errors.Is(err, context.DeadlineExceeded))
}

// retryUnavailable repeats a call that fails because Temporal is away.
func retryUnavailable(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if !away(ctx, err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pollEvery):
		}
	}
}
